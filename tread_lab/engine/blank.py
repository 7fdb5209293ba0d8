"""Builds a network without drawing the weights that a checkpoint will overwrite."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_DRAWS: frozenset[Any] = frozenset(
    {
        Tensor.normal_,
        Tensor.uniform_,
        nn.init.normal_,
        nn.init.uniform_,
        nn.init.trunc_normal_,
        nn.init.xavier_uniform_,
        nn.init.xavier_normal_,
        nn.init.kaiming_uniform_,
        nn.init.kaiming_normal_,
    }
)


class WithoutInit(TorchFunctionMode):
    """While it is on, tensors that would be filled with random numbers are filled with NaN.

    Everything else is computed as ever, such as tables of positions, which no checkpoint holds.
    NaN stays until a whole state dict is loaded. It is never out of bounds, so that loops that
    redraw what is out of bounds end, as torch's `trunc_normal_`. XL/2: 12 s less on one core.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _DRAWS:
            tensor: Tensor = args[0] if args else kwargs["tensor"]
            with torch.no_grad():
                return tensor.fill_(math.nan)
        return func(*args, **(kwargs or {}))
