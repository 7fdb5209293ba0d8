"""bf16 products on a CPU by its fp32 kernels, of rounded operands, where these are the faster."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

# What a CPU calls its instructions for bf16 (`torch.cpu.get_capabilities`).
UNITS = ("avx512_bf16", "amx_bf16", "amx_tile", "bf16", "sve_bf16")
Products = frozenset[Callable[..., Tensor]]
# Torch's attention takes 8 times as long backwards in bf16 as in fp32, with bf16 units, too.
ATTENTION: Products = frozenset((F.scaled_dot_product_attention,))
ALL: Products = ATTENTION | {F.linear}


@functools.cache
def multiplies_bf16() -> bool:
    """Return whether this CPU has instructions that multiply bf16 numbers."""
    capabilities: Mapping[str, Any] = torch.cpu.get_capabilities()
    return any(capabilities.get(unit, False) for unit in UNITS)


class RoundedProducts(TorchFunctionMode):
    """Linear maps and attention, or one of them, under bf16 autocast by fp32 kernels.

    As under autocast, operands and results are rounded to bf16, and so are the gradients of both.
    Torch's own kernels emulate the multiplication of bf16 numbers where a CPU has none, which takes
    3 to 5 times as long as in fp32; their sums are in another order and their attention rounds its
    weights to bf16, too.

    Args:
        products: functions of torch whose products these are.
    """

    def __init__(self, products: Products = ALL) -> None:
        super().__init__()
        self.products = products

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call `func`, with rounded operands if it is a product under autocast."""
        kwargs = kwargs or {}
        if func not in self.products or not torch.is_autocast_enabled("cpu"):
            return func(*args, **kwargs)
        named = {name: _rounded(value) for name, value in kwargs.items()}
        with torch.autocast("cpu", enabled=False):
            return func(*map(_rounded, args), **named).bfloat16()


def _rounded(value: Any) -> Any:
    """Return the nearest bf16 numbers in fp32; what is no tensor of numbers stays as it is."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.bfloat16().float()
    return value
