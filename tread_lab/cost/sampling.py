"""What an evaluation costs: the network calls of a solver or probe, by their branches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tread_lab.config.evaluation import EvaluationSpec, HeldoutSpec, SamplerSpec, SamplesSpec
from tread_lab.config.guidance import routes_taken
from tread_lab.config.routes import RouteSpec
from tread_lab.config.run import RunSpec
from tread_lab.cost.training import FLOPS_PER_MAC, block_macs, cost

CALLS = {"heun": 2, "heun_full": 2}  # network calls of a step; one of every other solver


def _routed_macs(spec: RunSpec, routes: tuple[RouteSpec, ...], rate: float) -> int:
    """MACs of a pass whose routes have another rate; a rate too low to route a token is dense."""
    rated = (dataclasses.replace(route, rate=rate) for route in routes)
    active = tuple(route for route in rated if route.routed(spec.tokens))
    run_cost = cost(dataclasses.replace(spec, routes=active or spec.routes, init_from=None))
    return run_cost.routed.network if active else run_cost.dense.network


def _macs_without_path(spec: RunSpec, routes: tuple[RouteSpec, ...], rate: float) -> int:
    """Return the MACs of a pass in which no token runs the blocks of a route."""
    skipped = [l for route in routes for l in route.blocks]
    text = spec.text_tokens > 0  # a caption runs the blocks all the same
    rest = [block_macs(spec, l, spec.tokens) - text * block_macs(spec, l, 0) for l in skipped]
    return cost(spec).dense.network - sum(rest)


PATH_MACS: dict[str, Callable[[RunSpec, tuple[RouteSpec, ...], float], int]] = {
    "full": _routed_macs,
    "dropped": _macs_without_path,
}


def pass_flops(spec: RunSpec, evaluation: EvaluationSpec) -> int:
    """Return the FLOPs of all network calls of an evaluation, for forecasts.

    Every branch of a guidance counts at every call, at the mean of its first and last rate.
    """
    if isinstance(evaluation, SamplesSpec):
        return evaluation.count * _image_flops(spec, evaluation.sampler)
    run_cost, both = cost(spec), isinstance(evaluation, HeldoutSpec) and bool(spec.routes)
    macs_each = run_cost.dense.network + (run_cost.routed.network if both else 0)
    return evaluation.images * evaluation.levels * FLOPS_PER_MAC * macs_each


def _image_flops(spec: RunSpec, sampler: SamplerSpec) -> int:
    routes = routes_taken(spec, sampler.guidance)
    calls = sampler.steps * CALLS.get(sampler.solver, 1)
    branches = sampler.guidance.branches
    rates = ((branch, (branch.rate.first + branch.rate.last) / 2) for branch in branches)
    macs = sum(PATH_MACS[branch.path](spec, routes, rate) for branch, rate in rates)
    return FLOPS_PER_MAC * calls * macs
