"""Published SiT checkpoints: weights whose time and velocity run towards the data, turned round."""

# C channels, D width, F frequencies, P pixels of a patch

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tread_lab.specs.errors import UserError

_LEVEL = "t_embedder.mlp.0.weight"  # [D, 2F]: F cosines, then F sines
_LAST = ("final_layer.linear.weight", "final_layer.linear.bias")  # [P C, D] or [P 2C, D]; [P C]


def from_sit(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights that predict eps - x at level t where a SiT predicts x - eps at 1 - t.

    SiT has data at t = 1 and noise at 0 (Ma et al. 2024, its code's `transport`, which LightningDiT
    uses, too), and drops the second half of its output channels (`learn_sigma`); a LightningDiT has
    no such half. The last layer keeps the first half and
    changes its sign. The level enters as cos(f t) and sin(f t), of which those of 1 - t are linear:

        cos(f (1 - t)) = cos f cos(f t) + sin f sin(f t)
        sin(f (1 - t)) = sin f cos(f t) - cos f sin(f t)

    so that the first layer of the level's embedder, turned in float64, takes t itself.

    Raises:
        UserError: a tensor of these layers is missing or has no SiT's shape.
    """
    missing = [name for name in (_LEVEL, "x_embedder.proj.weight", *_LAST) if name not in state]
    if missing:
        raise UserError(f"{missing[0]} is missing")
    _, C, height, width = state["x_embedder.proj.weight"].shape
    turned = dict(state)
    turned[_LEVEL] = _of_the_other_end(state[_LEVEL])
    for name in _LAST:
        turned[name] = -_first_half(name, state[name], height * width, C)
    return turned


def _of_the_other_end(weight_DF: Tensor) -> Tensor:
    """Return the weight that gives at t what this one gives at 1 - t."""
    F = weight_DF.shape[1] // 2
    f_F = torch.exp(-math.log(10_000) * torch.arange(F, dtype=torch.float64) / F)
    cos_DF, sin_DF = weight_DF.double().chunk(2, dim=1)
    cosines = cos_DF * f_F.cos() + sin_DF * f_F.sin()
    sines = cos_DF * f_F.sin() - sin_DF * f_F.cos()
    return torch.cat([cosines, sines], dim=1).to(weight_DF.dtype)


def _first_half(name: str, rows: Tensor, P: int, C: int) -> Tensor:
    """Return the rows of the first C channels of every pixel; all where there are no more."""
    if len(rows) not in (P * C, 2 * P * C):
        raise UserError(f"{name} has {len(rows)} rows, and a SiT's has {2 * P * C} or {P * C}")
    by_pixel = rows.reshape(P, len(rows) // P, *rows.shape[1:])
    return by_pixel[:, :C].reshape(P * C, *rows.shape[1:])
