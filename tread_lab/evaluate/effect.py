"""Guidance that never acts on a run, which is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tread_lab.config.errors import UserError
from tread_lab.config.evaluation import SamplerSpec
from tread_lab.config.guidance import routes_taken
from tread_lab.config.routes import RouteSpec
from tread_lab.config.run import RunSpec
from tread_lab.evaluate.sampling_calls import terms_called

_NEAREST = 6  # levels that an error names


def check_effect(run: RunSpec, sampler: SamplerSpec) -> None:
    """Refuse guidance that never acts, since its images would be stored under its name.

    Raises:
        UserError: no level of the solver lies in the interval, or a rate routes no token.
    """
    guidance = sampler.guidance
    terms = terms_called(run.process, sampler)
    if guidance.interval is not None and all(len(own) == 1 for _, own in terms):
        _refuse_interval(guidance.interval, {level for level, _ in terms})
    routes = routes_taken(run, guidance)
    for k, branch in enumerate(guidance.branches):
        acting = (own[k].rate for _, own in terms if k < len(own))
        if not branch.rate.zero and not any(_routes_a_token(run, routes, rate) for rate in acting):
            raise UserError(
                f"sampler.guidance: a rate of {branch.rate} routes none of {run.tokens} tokens at"
                " any level where it acts; raise it"
            )


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


def _routes_a_token(run: RunSpec, routes: Sequence[RouteSpec], rate: float) -> bool:
    return any(replace(route, rate=rate).routed(run.tokens) for route in routes)
