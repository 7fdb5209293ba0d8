"""The arithmetic of a pass: tf32 or exact matrix products, autocast, and fp16's loss scaling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tread_lab.engine.rounded_products import ALL, ATTENTION, RoundedProducts, multiplies_bf16
from tread_lab.specs.errors import lookup


@dataclass(frozen=True)
class Arithmetic:
    """What a precision means for the forward and backward pass; weights are fp32 in every one.

    Attributes:
        autocast: the type in which matrix products and convolutions run, or None for fp32.
        tf32: whether products of fp32 operands may round them to tf32. Under autocast these are
            the products of the fp32 block: the official code runs them in tf32, too.
        scales_loss: whether the loss is scaled, since small gradients would underflow.
    """

    autocast: torch.dtype | None = None
    tf32: bool = False
    scales_loss: bool = False


PRECISIONS: Mapping[str, Arithmetic] = {
    "fp32": Arithmetic(),
    "tf32": Arithmetic(tf32=True),
    "bf16": Arithmetic(autocast=torch.bfloat16, tf32=True),
    "fp16": Arithmetic(autocast=torch.float16, tf32=True, scales_loss=True),
}


# What makes products in bf16, as provenance names it: on a GPU, and on a CPU without and with
# instructions that multiply bf16 numbers.
NATIVE = "bf16 kernels"
ROUNDED = "rounded operands, fp32 kernels"
MIXED = "bf16 kernels, attention of rounded operands by fp32 kernels"
BY_FP32 = {ROUNDED: ALL, MIXED: ATTENTION}  # the products that fp32 kernels make


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Matrix products and convolutions in bf16 or fp16; nothing changes for fp32 and tf32."""
    dtype = lookup(PRECISIONS, precision, "precision").autocast
    context = torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
    made_by = bf16_products(precision, device.type)
    return _rounded(context, RoundedProducts(BY_FP32[made_by])) if made_by in BY_FP32 else context


@contextmanager
def _rounded(autocast: AbstractContextManager[object], products: RoundedProducts) -> Iterator[None]:
    with autocast, products:
        yield


def bf16_products(precision: str, device_type: str) -> str | None:
    """Return what makes the products in bf16 on a device of this machine; `None` without any."""
    if lookup(PRECISIONS, precision, "precision").autocast is not torch.bfloat16:
        return None
    if device_type != "cpu":
        return NATIVE
    return MIXED if multiplies_bf16() else ROUNDED


@contextmanager
def matrix_products(precision: str) -> Iterator[None]:
    """Within the block products of fp32 operands are exact in fp32, else rounded to tf32.

    torch's own default lets convolutions use tf32 in an fp32 run; here fp32 means fp32. Under bf16
    and fp16 the fp32 block runs tf32 products, as in the official code. By datasheet an H100 does
    67 TFLOP/s exactly and 494 in tf32, so exact products would eat what routing gains. GPUs before
    Ampere and CPUs have no tf32 and compute these products exactly. The switches are the older pair
    of torch: reading one after the newer ones are set raises.
    """
    allowed = lookup(PRECISIONS, precision, "precision").tf32
    switches: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [switch.allow_tf32 for switch in switches]
    try:
        for switch in switches:
            switch.allow_tf32 = allowed
        yield
    finally:
        for switch, setting in zip(switches, before):
            switch.allow_tf32 = setting


class LossScaler:
    """fp16's loss scaling around an optimizer step; every other precision steps plainly.

    The scaler is torch's, the one accelerate hands out. It is held here because accelerate drops
    fp16 on a CPU without a word and does not notice a step that the fused optimizer skipped.

    Attributes:
        overflows: steps skipped so far because a gradient was not finite.
    """

    def __init__(self, precision: str, device: torch.device) -> None:
        self.enabled = lookup(PRECISIONS, precision, "precision").scales_loss
        self.overflows = torch.zeros((), dtype=torch.long, device=device)
        self._scaler = torch.amp.GradScaler(device.type, enabled=self.enabled)
        self._one = torch.ones((), device=device)

    def scale(self, loss: Tensor) -> Tensor:
        """Return the loss times the present scale."""
        return self._scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Bring gradients to their true size, for clipping."""
        self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> Tensor | None:
        """Step, or skip if a gradient is not finite and halve the scale.

        Returns:
            Whether the step was skipped, a bool on the device, so that nobody waits for it; `None`
            where steps are never skipped.
        """
        before = self.scale(self._one)
        self._scaler.step(optimizer)
        self._scaler.update()
        if not self.enabled:
            return None
        skipped = self.scale(self._one) < before
        self.overflows += skipped
        return skipped

    def state(self) -> dict[str, Tensor]:
        """Scale, good steps since it last grew, and overflows, as tensors; empty if not used."""
        if not self.enabled:
            return {}
        state = self._scaler.state_dict()
        return {
            "scale": torch.tensor(state["scale"], dtype=torch.float64),
            "growth": torch.tensor(state["_growth_tracker"]),
            "overflows": self.overflows,
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up what `state` gave."""
        if not self.enabled:
            return
        known = self._scaler.state_dict()
        known |= {"scale": float(state["scale"]), "_growth_tracker": int(state["growth"])}
        self._scaler.load_state_dict(known)
        self.overflows.copy_(state["overflows"])
