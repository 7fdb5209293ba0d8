"""Compiled blocks: every block by itself, so that all placements of a route share their graphs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from tread_lab.specs.errors import lookup
from tread_lab.specs.model import BACKBONES
from tread_lab.specs.run import RunSpec

# Graphs that blocks of one kind may need in a process that carries out many runs: two lengths for
# each rate, times batch sizes, precisions, and passes with and without gradients.
GRAPHS = 256

EAGER, INDUCTOR = "eager", f"inductor {torch.__version__}"

Backend = str | Callable[..., object]


def arithmetic(spec: RunSpec, device_type: str) -> str:
    """Return what computes the blocks of a run: `eager`, or the compiler and its version.

    `auto` compiles on a GPU. Backbones whose blocks do not compile are eager everywhere.
    """
    asked = spec.execution.compile
    wanted = asked == "blocks" or (asked == "auto" and device_type == "cuda")
    able = lookup(BACKBONES, spec.model.backbone, "model.backbone").compiles
    return INDUCTOR if wanted and able else EAGER


def compile_blocks(network: nn.Module, *, backend: Backend = "inductor") -> None:
    """Compile every block of a network in place; its parameters keep their names.

    A block has one graph for each number of tokens it meets, the whole and the kept ones. Blocks of
    equal shape share graphs, within a network and with the next one of the process. A graph break
    and too many graphs raise, so that no run falls back to eager unnoticed.
    """
    from torch._dynamo import config  # a second of imports, which eager runs do without

    config.recompile_limit = GRAPHS
    config.accumulated_recompile_limit = 2 * GRAPHS
    blocks: nn.ModuleList = network.get_submodule("blocks")  # type: ignore[assignment]
    for block in blocks:
        block.compile(backend=backend, dynamic=False, fullgraph=True)


def compile_for(spec: RunSpec, network: nn.Module, device: torch.device) -> None:
    """Compile the blocks of a run's network where `arithmetic` says so."""
    if arithmetic(spec, device.type) != EAGER:
        compile_blocks(network)
