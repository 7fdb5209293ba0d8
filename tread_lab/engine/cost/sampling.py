"""What generating an image costs: every network call of the solver, under guidance and routes."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from tread_lab.diffusion import build_process
from tread_lab.engine.cost.blocks import block_macs
from tread_lab.engine.cost.training import FLOPS_PER_MAC, cost
from tread_lab.sampling.generate import place, progress
from tread_lab.sampling.guidance import Term, acting
from tread_lab.sampling.solvers import SOLVERS
from tread_lab.specs.evaluation import SamplerSpec
from tread_lab.specs.guidance import routes_taken
from tread_lab.specs.run import RunSpec


def sample_flops(spec: RunSpec, sampler: SamplerSpec) -> int:
    """Forward FLOPs per image: all branches that act at each call, each at its rate there."""
    return FLOPS_PER_MAC * sum(call_macs(spec, sampler))


def call_macs(spec: RunSpec, sampler: SamplerSpec, *, attention: bool = True) -> list[int]:
    """MACs per image of every point at which the solver asks for the prediction, in order.

    Args:
        attention: count 2 n^2 d per block; SG and early TREAD leave it out.
    """
    levels, known = build_process(spec.process).grid(sampler), dict[float, int]()
    routes = routes_taken(spec, sampler.guidance)

    def macs(term: Term) -> int:
        return path_macs[term.branch.path](term.rate)

    def without_path(_: float) -> int:
        skipped = sum(len(route.blocks) for route in routes)
        each = block_macs(spec.model, spec.tokens, attention=attention)
        return cost(spec, attention=attention).dense_macs - skipped * each

    def routed(rate: float) -> int:
        if rate not in known:
            taken = (dataclasses.replace(route, rate=rate) for route in routes)
            active = tuple(route for route in taken if route.routed(spec.tokens))
            run = dataclasses.replace(spec, routes=active or spec.routes, init_from=None)
            found = cost(run, attention=attention)
            known[rate] = found.routed_macs if active else found.dense_macs
        return known[rate]

    path_macs = {"full": routed, "dropped": without_path}
    calls = []
    for level in called_at(sampler.solver, levels):
        done = progress(place(levels, level), sampler.steps)
        calls.append(sum(macs(term) for term in acting(sampler.guidance, level, done)))
    return calls


def called_at(solver: str, levels: Tensor) -> list[float]:
    """The levels at which a solver calls the network: it is run on nothing, and watched."""
    found: list[float] = []

    def velocity(z: Tensor, level: Tensor) -> Tensor:
        found.append(float(level))
        return torch.zeros_like(z)

    SOLVERS[solver](velocity, torch.zeros(1), levels)
    return found
