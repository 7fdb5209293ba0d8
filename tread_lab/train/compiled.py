"""Compiled blocks: every block by itself, so that all placements of a route share their graphs."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from tread_lab.config.errors import first_line, lookup
from tread_lab.config.model import BACKBONES
from tread_lab.config.run import RunSpec

# Graphs that blocks of one kind may need in a process that carries out many runs: two lengths for
# each rate, times batch sizes, precisions, and passes with and without gradients.
GRAPHS = 256

EAGER, INDUCTOR = "eager", f"inductor {torch.__version__}"

Backend = str | Callable[..., object]


def arithmetic(spec: RunSpec, device_type: str) -> str:
    """Return what computes the blocks of a run: `eager`, or the compiler and its version.

    `auto` compiles on a GPU beside which a C compiler works. Backbones whose blocks do not compile
    are eager everywhere.
    """
    asked = spec.execution.compile
    able = lookup(BACKBONES, spec.model.backbone, "model.backbone").compiles
    if asked == "auto":
        able = able and device_type == "cuda" and no_compiler() is None
    return INDUCTOR if able and asked != "none" else EAGER


@functools.cache
def no_compiler() -> str | None:
    """Return why no C compiler works here, of which inductor and Triton need one; else `None`."""
    command = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if command is None:
        return "there is no cc, gcc or clang, and CC names none"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <stdlib.h>\nint probe(void) { return abs(-1); }\n")
        words = [*shlex.split(command), "-shared", "-fPIC", str(source), "-o", f"{folder}/probe.so"]
        try:
            subprocess.run(words, check=True, capture_output=True, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            return f"{command} compiles nothing ({first_line(error)})"
    return None


def compile_blocks(network: nn.Module, *, backend: Backend = "inductor") -> None:
    """Compile every block of a network in place; its parameters keep their names.

    A block has one graph for each number of tokens it meets, the whole and the kept ones. Blocks of
    equal shape share graphs, within a network and with the next one of the process. A graph break
    and too many graphs raise, so that no run falls back to eager unnoticed.
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
    """Compile the blocks of a run's network where `arithmetic` says so."""
    if arithmetic(spec, device.type) != EAGER:
        compile_blocks(network)
