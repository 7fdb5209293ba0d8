"""The network calls of a solver, one by one: levels, branches, FLOPs, guidance without effect."""

from __future__ import annotations

import functools
from dataclasses import replace

import torch
from torch import Tensor

from tread_lab.config.errors import UserError, lookup
from tread_lab.config.evaluation import SamplerSpec
from tread_lab.config.guidance import routes_taken
from tread_lab.config.recipe import ProcessSpec
from tread_lab.config.run import RunSpec
from tread_lab.cost.training import FLOPS_PER_MAC, PATH_MACS
from tread_lab.diffusion import build_process
from tread_lab.diffusion.generate import place, progress
from tread_lab.diffusion.guided import Term, acting
from tread_lab.diffusion.solvers import SOLVERS


def sample_flops(spec: RunSpec, sampler: SamplerSpec) -> int:
    """Return forward FLOPs per image over all calls and acting branches, at their rates."""
    return FLOPS_PER_MAC * sum(call_macs(spec, sampler))


def call_macs(spec: RunSpec, sampler: SamplerSpec) -> list[int]:
    """Return the MACs per image of every solver call, in order."""
    routes = routes_taken(spec, sampler.guidance)
    macs_at = functools.cache(lambda path, rate: PATH_MACS[path](spec, routes, rate))
    called = terms_called(spec.process, sampler)
    return [sum(macs_at(term.branch.path, term.rate) for term in terms) for _, terms in called]


@functools.lru_cache(maxsize=256)
def terms_called(process: ProcessSpec, sampler: SamplerSpec) -> list[tuple[float, list[Term]]]:
    """Return the noise level and acting terms of every solver call."""
    levels, guidance = build_process(process).grid(sampler), sampler.guidance
    return [
        (level, acting(guidance, level, progress(place(levels, level), sampler.steps)))
        for level in called_at(sampler.solver, levels)
    ]


def check_effect(run: RunSpec, sampler: SamplerSpec) -> None:
    """Refuse guidance without effect.

    Raises:
        UserError: no level of the solver lies in the interval, or a rate routes no token.
    """
    guidance, terms = sampler.guidance, terms_called(run.process, sampler)
    if guidance.interval is not None and all(len(own) == 1 for _, own in terms):
        levels = sorted({level for level, _ in terms}, reverse=True)
        raise UserError(
            "sampler.guidance.interval: must contain a noise level of the solver, got "
            f"{list(guidance.interval)}; its {len(levels)} levels are from {levels[0]:.4g} to "
            f"{levels[-1]:.4g}"
        )
    for k, branch in enumerate(guidance.branches):
        acting = {own[k].rate for _, own in terms if k < len(own)}
        routes = [replace(r, rate=rate) for r in routes_taken(run, guidance) for rate in acting]
        if not branch.rate.zero and not any(route.routed(run.tokens) for route in routes):
            raise UserError(
                f"sampler.guidance: rate must route at least one of {run.tokens} tokens, got "
                f"{branch.rate}. Try a higher rate."
            )


def called_at(solver: str, levels: Tensor) -> list[float]:
    """Return the levels at which a solver calls the network, found on a zero field."""
    field = _Watched()
    lookup(SOLVERS, solver, "solver")(field, torch.zeros(1, 1, 1, 1), levels)
    return field.called


class _Watched:
    """A field of zeros that remembers at which levels it was asked."""

    def __init__(self) -> None:
        self.called: list[float] = []

    def __call__(self, z_BCHW: Tensor, level: Tensor) -> Tensor:
        self.called.append(float(level))
        return torch.zeros_like(z_BCHW)

    def reverse(self, z_BCHW: Tensor, now: Tensor, then: Tensor) -> tuple[Tensor, Tensor]:
        return self(z_BCHW, now), torch.zeros_like(z_BCHW)

    def noise(self, step: int) -> Tensor:
        return torch.zeros(())
