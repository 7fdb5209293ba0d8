"""The arithmetic of a step: compiled blocks, tf32 or exact products, autocast, loss scaling."""

from __future__ import annotations

import functools
import os
import shutil
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tread_lab.config.errors import lookup
from tread_lab.config.model import BACKBONES
from tread_lab.config.run import RunSpec

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
    """Linear maps and/or attention under bf16 autocast, computed by fp32 kernels.

    Operands, results and gradients are rounded to bf16, as under autocast. On CPUs without bf16
    instructions, torch's own kernels emulate them, 3 to 5 times slower than fp32; they sum in
    another order, and their attention also rounds its weights.

    Args:
        products: the affected torch functions.
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


# precision -> the type of matrix products and convolutions under autocast, or else that of the
# weights, which are fp32 in every precision.
PRECISIONS: Mapping[str, torch.dtype | None] = {
    "fp32": None,
    "tf32": None,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


def autocast_type(precision: str) -> torch.dtype | None:
    """Return the autocast type of a precision; raise a `UserError` if unknown."""
    return lookup(PRECISIONS, precision, "precision")


# What makes products in bf16, as provenance names it: on a GPU, and on a CPU without and with
# instructions that multiply bf16 numbers.
NATIVE = "bf16 kernels"
ROUNDED = "rounded operands, fp32 kernels"
MIXED = "bf16 kernels, attention of rounded operands by fp32 kernels"
BY_FP32 = {ROUNDED: ALL, MIXED: ATTENTION}  # the products that fp32 kernels make


@contextmanager
def autocast(precision: str, device: torch.device) -> Iterator[None]:
    """Autocast to bf16 or fp16; no effect for fp32 and tf32."""
    dtype = autocast_type(precision)
    products = BY_FP32.get(bf16_products(precision, device.type) or "")
    rounded = nullcontext() if products is None else RoundedProducts(products)
    with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None), rounded:
        yield


def bf16_products(precision: str, device_type: str) -> str | None:
    """Return the bf16 products for a device of this machine, or `None` for torch's own."""
    if autocast_type(precision) is not torch.bfloat16:
        return None
    if device_type != "cpu":
        return NATIVE
    return MIXED if multiplies_bf16() else ROUNDED


@contextmanager
def matrix_products(precision: str) -> Iterator[None]:
    """Within the block, products of fp32 operands are exact for `fp32`, else tf32.

    torch's own default lets convolutions use tf32 in an fp32 run; here fp32 means fp32. Under bf16
    and fp16 the fp32 block runs tf32 products, as in the official code. By datasheet an H100
    reaches 67 TFLOP/s in fp32 and 494 in tf32, so exact products would cost more than routing
    gains. CPUs and GPUs before Ampere have no tf32. Uses torch's older switches, because reading
    them after setting the newer ones raises.
    """
    allowed = autocast_type(precision) is not None or precision == "tf32"
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
    """Loss scaling for fp16; other precisions step directly.

    Uses torch's scaler directly, because accelerate silently drops fp16 on a CPU and misses steps
    skipped by the fused optimizer.

    Attributes:
        overflows: steps skipped so far because a gradient was not finite.
    """

    def __init__(self, precision: str, device: torch.device) -> None:
        self.enabled = autocast_type(precision) is torch.float16
        self.overflows = torch.zeros((), dtype=torch.long, device=device)
        self._scaler = torch.amp.GradScaler(device.type, enabled=self.enabled)
        self._one = torch.ones((), device=device)

    def scale(self, loss: Tensor) -> Tensor:
        """Return the loss times the current scale."""
        return self._scaler.scale(loss)

    def unscale(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Unscale gradients, for clipping."""
        for optimizer in optimizers:
            self._scaler.unscale_(optimizer)

    def step(self, optimizers: Sequence[torch.optim.Optimizer]) -> Tensor | None:
        """Step, or skip if a gradient is not finite and halve the scale.

        Returns:
            Whether the step was skipped, as a bool on the device; `None` if steps are never
            skipped.
        """
        before = self.scale(self._one)
        for optimizer in optimizers:
            self._scaler.step(optimizer)
        self._scaler.update()
        if not self.enabled:
            return None
        skipped = self.scale(self._one) < before
        self.overflows += skipped
        return skipped

    def state(self) -> dict[str, Tensor]:
        """State as tensors: scale, good steps since its last growth, overflows; empty if unused."""
        if not self.enabled:
            return {}
        state = self._scaler.state_dict()
        return {
            "scale": torch.tensor(state["scale"], dtype=torch.float64),
            "growth": torch.tensor(state["_growth_tracker"]),
            "overflows": self.overflows,
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore the result of `state`."""
        if not self.enabled:
            return
        known = self._scaler.state_dict()
        known |= {"scale": float(state["scale"]), "_growth_tracker": int(state["growth"])}
        self._scaler.load_state_dict(known)
        self.overflows.copy_(state["overflows"])


# Graphs that blocks of one kind may need in a process that carries out many runs: two lengths for
# each rate, times batch sizes, precisions, and passes with and without gradients.
GRAPHS = 256

EAGER, INDUCTOR = "eager", f"inductor {torch.__version__}"

Backend = str | Callable[..., object]


def arithmetic(spec: RunSpec, device_type: str) -> str:
    """Return how blocks are computed: `eager`, or the compiler and its version.

    `auto` compiles on a GPU where `has_compiler`. Backbones whose blocks do not compile are
    eager everywhere.
    """
    asked = spec.execution.compile
    able = lookup(BACKBONES, spec.model.backbone, "model.backbone").compiles
    if asked == "auto":
        able = able and device_type == "cuda" and has_compiler()
    return INDUCTOR if able and asked != "none" else EAGER


@functools.cache
def has_compiler() -> bool:
    """Return whether there are a C compiler and Python's headers here, which Triton builds with."""
    named = os.environ.get("CC", "").split()[:1]
    headers = Path(sysconfig.get_path("include", "posix_prefix"))  # Triton's, Debian has another
    return any(map(shutil.which, named or ("gcc", "clang"))) and (headers / "Python.h").exists()


def compile_blocks(network: nn.Module, *, backend: Backend = "inductor") -> None:
    """Compile every block of a network in place; its parameters keep their names.

    A block has one graph per number of tokens. Blocks of equal shape share graphs, also across runs
    of a process. Graph breaks and too many graphs raise instead of falling back to eager.
    """
    from torch._dynamo import config  # a second of imports, which eager runs do without

    # The compiler advises tf32 to every process that computes in exact fp32.
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
    config.recompile_limit = GRAPHS
    config.accumulated_recompile_limit = 2 * GRAPHS
    blocks: nn.ModuleList = network.get_submodule("blocks")  # type: ignore[assignment]
    for block in blocks:
        block.compile(backend=backend, dynamic=False, fullgraph=True)


def compile_for(spec: RunSpec, network: nn.Module, device: torch.device) -> None:
    """Compile the blocks of a run's network if `arithmetic` requires it; warn if only a compiler is
    missing."""
    if arithmetic(spec, device.type) != EAGER:
        compile_blocks(network)
    elif device.type == "cuda" and spec.execution.compile == "auto" and not has_compiler():
        warnings.warn(
            "execution.compile: blocks run eagerly without a C compiler or Python.h. Try installing"
            " gcc and python3-dev.",
            stacklevel=2,
        )
