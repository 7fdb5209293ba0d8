"""What an evaluation costs: every network call of a solver, under guidance and routes; probes."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from tread_lab.diffusion import build_process
from tread_lab.engine.cost.training import FLOPS_PER_MAC, block_macs, cost
from tread_lab.engine.probes import BATCH as PROBED
from tread_lab.sampling.generate import IMAGES_A_CALL, place, progress
from tread_lab.sampling.guidance import acting
from tread_lab.sampling.solvers import SOLVERS
from tread_lab.specs.errors import lookup
from tread_lab.specs.evaluation import EvaluationSpec, HeldoutSpec, SamplerSpec, SamplesSpec
from tread_lab.specs.guidance import routes_taken
from tread_lab.specs.routes import RouteSpec
from tread_lab.specs.run import RunSpec


def sample_flops(spec: RunSpec, sampler: SamplerSpec) -> int:
    """Return forward FLOPs per image: at each call all branches that act, at their rates."""
    return FLOPS_PER_MAC * sum(call_macs(spec, sampler))


def call_macs(spec: RunSpec, sampler: SamplerSpec) -> list[int]:
    """Return the MACs per image of every call of the prediction by the solver, in order."""
    levels = build_process(spec.process).grid(sampler)
    routes = routes_taken(spec, sampler.guidance)
    macs_at = functools.cache(lambda path, rate: PATH_MACS[path](spec, routes, rate))
    calls = []
    for level in called_at(sampler.solver, levels):
        terms = acting(sampler.guidance, level, progress(place(levels, level), sampler.steps))
        calls.append(sum(macs_at(term.branch.path, term.rate) for term in terms))
    return calls


def _routed_macs(spec: RunSpec, routes: tuple[RouteSpec, ...], rate: float) -> int:
    """MACs of a pass whose routes have another rate; a rate too low to route a token is dense."""
    rated = (dataclasses.replace(route, rate=rate) for route in routes)
    active = tuple(route for route in rated if route.routed(spec.tokens))
    run_cost = cost(dataclasses.replace(spec, routes=active or spec.routes, init_from=None))
    return run_cost.routed_macs if active else run_cost.dense_macs


def _macs_without_path(spec: RunSpec, routes: tuple[RouteSpec, ...], rate: float) -> int:
    """Return the MACs of a pass in which no token runs the blocks of a route."""
    skipped = [l for route in routes for l in route.blocks]
    text = spec.text_tokens > 0  # a caption runs the blocks all the same
    rest = [block_macs(spec, l, spec.tokens) - text * block_macs(spec, l, 0) for l in skipped]
    return cost(spec).dense_macs - sum(rest)


PATH_MACS: dict[str, Callable[[RunSpec, tuple[RouteSpec, ...], float], int]] = {
    "full": _routed_macs,
    "dropped": _macs_without_path,
}


def called_at(solver: str, levels: Tensor) -> list[float]:
    """Return the levels at which a solver calls the network: it follows a field of zeros."""
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


def passes(
    spec: RunSpec, evaluation: EvaluationSpec, images_a_call: float = IMAGES_A_CALL["cpu"]
) -> tuple[int, int]:
    """Return the network calls of an evaluation, and the FLOPs of all of them."""
    if isinstance(evaluation, SamplesSpec):
        macs, branches = call_macs(spec, evaluation.sampler), evaluation.sampler.guidance.branches
        calls = math.ceil(evaluation.count / images_a_call) * len(macs) * len(branches)
        return calls, evaluation.count * FLOPS_PER_MAC * sum(macs)
    run_cost, both = cost(spec), isinstance(evaluation, HeldoutSpec) and bool(spec.routes)
    macs_each = run_cost.dense_macs + (run_cost.routed_macs if both else 0)
    calls = math.ceil(evaluation.images / PROBED) * evaluation.levels * (2 if both else 1)
    return calls, evaluation.images * evaluation.levels * FLOPS_PER_MAC * macs_each
