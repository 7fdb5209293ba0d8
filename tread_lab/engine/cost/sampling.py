"""What an evaluation costs: the network calls of a solver or probe."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from tread_lab.data.scaled import MOST_HELDOUT
from tread_lab.data.source import open_data
from tread_lab.diffusion import build_process
from tread_lab.engine.cost.training import FLOPS_PER_MAC, block_macs, cost
from tread_lab.metrics.reference_file import described_images
from tread_lab.sampling.generate import place, progress
from tread_lab.sampling.guidance import Term, acting
from tread_lab.sampling.solvers import SOLVERS
from tread_lab.specs.data import DataSpec
from tread_lab.specs.errors import UserError, lookup
from tread_lab.specs.evaluation import EvaluationSpec, HeldoutSpec, SamplerSpec, SamplesSpec
from tread_lab.specs.guidance import routes_taken
from tread_lab.specs.metrics import METRICS
from tread_lab.specs.recipe import ProcessSpec
from tread_lab.specs.routes import RouteSpec
from tread_lab.specs.run import RunSpec


def sample_flops(spec: RunSpec, sampler: SamplerSpec) -> int:
    """Return forward FLOPs per image: at each call all branches that act, at their rates."""
    return FLOPS_PER_MAC * sum(call_macs(spec, sampler))


def call_macs(spec: RunSpec, sampler: SamplerSpec) -> list[int]:
    """Return the MACs per image of every call of the prediction by the solver, in order."""
    routes = routes_taken(spec, sampler.guidance)
    macs_at = functools.cache(lambda path, rate: PATH_MACS[path](spec, routes, rate))
    called = terms_called(spec.process, sampler)
    return [sum(macs_at(term.branch.path, term.rate) for term in terms) for _, terms in called]


@functools.lru_cache(maxsize=256)
def terms_called(process: ProcessSpec, sampler: SamplerSpec) -> list[tuple[float, list[Term]]]:
    """Return the level of every call of the prediction by the solver, and the terms that act."""
    levels, guidance = build_process(process).grid(sampler), sampler.guidance
    return [
        (level, acting(guidance, level, progress(place(levels, level), sampler.steps)))
        for level in called_at(sampler.solver, levels)
    ]


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


def pass_flops(spec: RunSpec, evaluation: EvaluationSpec) -> int:
    """Return the FLOPs of all network calls of an evaluation."""
    if isinstance(evaluation, SamplesSpec):
        return evaluation.count * sample_flops(spec, evaluation.sampler)
    run_cost, both = cost(spec), isinstance(evaluation, HeldoutSpec) and bool(spec.routes)
    macs_each = run_cost.dense.network + (run_cost.routed.network if both else 0)
    return evaluation.images * evaluation.levels * FLOPS_PER_MAC * macs_each


def reference_images(data: DataSpec, evaluation: SamplesSpec) -> int:
    """Return how many real images are described: all held-out ones, those of a file, or none.

    A file's are described for metrics that its moments are not enough for. Ten thousand are
    assumed where data or file cannot be read, the most that a data set without held-out arrays of
    its own holds out.
    """
    with contextlib.suppress(UserError):
        if evaluation.reference is not None:
            return described_images(evaluation.reference, evaluation.metrics)
        return len(open_data(data, "heldout")) if described(evaluation) else 0
    return MOST_HELDOUT if described(evaluation) else 0


def described(evaluation: SamplesSpec) -> list[str]:
    """Return the metrics that need features of references; for some a file's moments are enough."""
    by_file = evaluation.reference is not None
    return [
        metric
        for metric in evaluation.metrics
        if METRICS[metric].compares and not (by_file and METRICS[metric].moments_given)
    ]
