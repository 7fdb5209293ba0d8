"""Guidance as one weighted sum of branches (weight, network, label or null, plan)."""

# B batch, C channels, H height, W width

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tread_lab.diffusion.process import Network, Process
from tread_lab.routing.select import RoutePlan
from tread_lab.spec.evaluation import GuidanceSpec

# denoiser(x_BCHW, t_B, y_B, plan) -> raw output
Denoiser = Callable[[Tensor, Tensor, Tensor, RoutePlan | None], Tensor]
Prediction = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Branch:
    """One term of the sum: `weight` times the prediction of `network` at `labels_B` and `plan`."""

    weight: float
    network: Denoiser
    labels_B: Tensor
    plan: RoutePlan | None = None


def branches(spec: GuidanceSpec, network: Denoiser, labels_B: Tensor, null: int) -> list[Branch]:
    """CFG: D_u + w (D_c - D_u) = w D_c + (1 - w) D_u (Ho & Salimans 2022)."""
    w = spec.weight
    conditional = Branch(w, network, labels_B)
    if w == 1:
        return [conditional]
    return [conditional, Branch(1 - w, network, torch.full_like(labels_B, null))]


def guided(
    process: Process, terms: Sequence[Branch], interval: tuple[float, float] | None = None
) -> Prediction:
    """(z, level) -> the sum over `terms`; outside `interval` the first term alone, weight 1."""

    def prediction(z_BCHW: Tensor, level: Tensor) -> Tensor:
        level_B = level.expand(len(z_BCHW))
        inside = interval is None or interval[0] <= float(level) <= interval[1]
        active = list(terms) if inside else [Branch(1.0, *_rest(terms[0]))]
        total = torch.zeros_like(z_BCHW)
        for term, out in zip(active, _predict(process, active, z_BCHW, level_B)):
            total = total + term.weight * out
        return total

    return prediction


def _rest(term: Branch) -> tuple[Denoiser, Tensor, RoutePlan | None]:
    return term.network, term.labels_B, term.plan


def _predict(
    process: Process, terms: Sequence[Branch], z_BCHW: Tensor, level_B: Tensor
) -> Sequence[Tensor]:
    """Every term's prediction; terms of one network without plans share one forward pass."""
    first = terms[0]
    if len(terms) > 1 and all(t.network is first.network and t.plan is None for t in terms):
        labels = torch.cat([t.labels_B for t in terms])
        z, level = torch.cat([z_BCHW] * len(terms)), torch.cat([level_B] * len(terms))
        out = process.predict(lambda x, t: first.network(x, t, labels, None), z, level)
        return out.chunk(len(terms))
    return [process.predict(_bound(term), z_BCHW, level_B) for term in terms]


def _bound(term: Branch) -> Network:
    return lambda x_BCHW, t_B: term.network(x_BCHW, t_B, term.labels_B, term.plan)
