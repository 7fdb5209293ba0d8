"""Settings of a sampler that change nothing for a run, which are refused."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from tread_lab.diffusion import build_process
from tread_lab.engine.sampling_calls import called_at, terms_called
from tread_lab.sampling.guidance import Term
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import SamplerSpec
from tread_lab.specs.guidance import routes_taken
from tread_lab.specs.recipe import ProcessSpec
from tread_lab.specs.routes import RouteSpec
from tread_lab.specs.run import RunSpec
from tread_lab.specs.units import short

_GRID = ("sigma_min", "sigma_max", "rho", "last_step")
_NEAREST = 6  # levels that an error names
_COUNTED = ("random", "rows", "structured")  # selections that the number of routed tokens decides

Routed = tuple[float, ...]


def check_effect(run: RunSpec, sampler: SamplerSpec, usual: SamplerSpec) -> None:
    """Refuse settings that a name of a metric would say, and that change no image of the run.

    Args:
        usual: the sampler of the run's experiment, whose settings no name says.
    """
    _check_grid(run, sampler, usual)
    guidance = sampler.guidance
    if "class" not in {b.label for b in guidance.branches} and sampler.labels != usual.labels:
        raise UserError("sampler.labels: no branch of the guidance sees a label; leave them out")
    if guidance.channels == "first3" and run.data.channels <= 3:
        raise UserError(
            f"sampler.guidance.channels: first3 is all of the {run.data.channels} channels of the"
            " data; leave it out"
        )
    terms = terms_called(run.process, sampler)
    if guidance.interval is not None and all(len(own) == 1 for _, own in terms):
        _refuse_interval(guidance.interval, {level for level, _ in terms})
    _check_rates(run, sampler, [own for _, own in terms])


def _check_grid(run: RunSpec, sampler: SamplerSpec, usual: SamplerSpec) -> None:
    levels = _levels(run.process, sampler)
    for name in _GRID:
        other = replace(sampler, **{name: getattr(usual, name)})
        if other != sampler and levels == _levels(run.process, other):
            raise UserError(
                f"sampler.{name}: changes no level of {sampler.solver} for a process of kind"
                f" {run.process.kind}, got {short(getattr(sampler, name))}; leave it out"
            )


@functools.lru_cache(maxsize=256)
def _levels(process: ProcessSpec, sampler: SamplerSpec) -> tuple[str, ...]:
    """Return the levels at which the solver calls the network, without what rounding makes."""
    called = called_at(sampler.solver, build_process(process).grid(sampler))
    return tuple(f"{level:.9g}" for level in called)


def _refuse_interval(interval: tuple[float, float], called: set[float]) -> None:
    low, high = interval
    levels = sorted(called, reverse=True)
    nearest = sorted(levels, key=lambda level: max(low - level, level - high))[:_NEAREST]
    named = ", ".join(f"{level:.4g}" for level in sorted(nearest, reverse=True))
    raise UserError(
        f"sampler.guidance.interval: must hold a level at which the solver calls the network, got"
        f" {[low, high]}; of {len(levels)} levels from {levels[0]:.4g} to {levels[-1]:.4g} the"
        f" nearest are {named}"
    )


def _check_rates(run: RunSpec, sampler: SamplerSpec, called: Sequence[Sequence[Term]]) -> None:
    """Refuse rates that route no token, and two rates that route the same tokens."""
    routes = routes_taken(run, sampler.guidance)
    branches = sampler.guidance.branches
    routed = [[_routed(run, routes, term.rate) for term in terms] for terms in called]
    for k, branch in enumerate(branches):
        if not branch.rate.zero and not any(any(own[k : k + 1]) for own in routed):
            raise UserError(
                f"sampler.guidance: a rate of {branch.rate} routes none of {run.tokens} tokens at"
                " any level where it acts; raise it"
            )
    rates = [branch.rate for branch in branches]
    if len(set(rates)) == 2 and all(own[0] == own[-1] for own in routed):
        raise UserError(
            f"sampler.guidance: rates of {rates[0]} and {rates[1]} route the same of {run.tokens}"
            " tokens; let them differ by a token"
        )


def _routed(run: RunSpec, routes: Sequence[RouteSpec], rate: float) -> Routed:
    """Return what decides the tokens that routes of a rate leave out; empty for none."""
    rated = [replace(route, rate=rate) for route in routes]
    counts = [route.routed(run.tokens) for route in rated]
    pairs = zip(rated, counts)
    return tuple(n if r.selection in _COUNTED else rate for r, n in pairs) if any(counts) else ()
