"""Runs small enough to be trained in a test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import torch

from tread_lab.config import DataSpec, ModelSpec, RouteSpec, RunSpec, decode
from tread_lab.config.recipe import ExecutionSpec, TrainSpec
from tread_lab.evaluate.measuring import measuring
from tread_lab.evaluate.probes import Measuring
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_state import RunState
from tread_lab.train.checkpoint import Checkpoint, load_latest
from tread_lab.train.trainer import Progress, train

CPU = torch.device("cpu")
T = TypeVar("T")


def small_run(**changes: Any) -> RunSpec:
    """Four blocks of width 16 on 16 tokens, routed around block 1, a few steps of fp32."""
    tree = {
        "model": {"depth": 4, "width": 16, "heads": 2, "patch": 4},
        "train": {"steps": 6, "batch": 8, "lr": 1e-3, "ema": {"halflife": 0.3}},
        "routes": ["1->1"],
        "precision": "fp32",
        "execution": {"log_every": 2, "checkpoint_every": 100},
    }
    return decode(RunSpec, {**tree, **changes})


def imagenet(
    size: str, *routes: str, rate: float = 0.5, side: int = 32, **fields: object
) -> RunSpec:
    """DiT-`size`/2 on latents of ImageNet; 32 pixels a side are 256 tokens."""
    return RunSpec(
        model=decode(ModelSpec, f"DiT-{size}/2"),
        data=DataSpec(source="latents", channels=4, size=side, classes=1000),
        routes=tuple(
            decode(RouteSpec, {**RouteSpec.from_shorthand(route), "rate": rate}) for route in routes
        ),
        **fields,  # type: ignore[arg-type]
    )


def measured_on_a_gpu() -> list[tuple[dict[str, Any], RunSpec]]:
    """The steps of B/2 that one H200 has measured, each with a run of one such step."""
    lines = (Path(__file__).parents[2] / "benchmarks" / "performance_gpu.jsonl").read_text()
    rows = [row for row in map(json.loads, lines.splitlines()) if row["what"] == "step"]
    measured = []
    for row in rows:
        name = row["variant"]
        if not name.startswith("plain"):
            fields = {
                "precision": "bf16",
                "fp32_block": "off" if "no fp32 block" in name else "j+1",
                "execution": ExecutionSpec(compile="blocks" if "compiled" in name else "none"),
                "train": TrainSpec(steps=1, batch=row["batch"]),
            }
            routes = ["2->8"] if "routed" in name else []
            measured.append((row, imagenet(row["model"], *routes, **fields)))
    return measured


def train_until(
    spec: RunSpec, folder: Path, step: int | None = None, *, device: torch.device = CPU, **how: Any
) -> list[Progress]:
    """Train in `folder`, to the end or stopped with a checkpoint after `step`."""
    seen = []
    with closing(train(spec, RunFolder(folder), device, **how)) as reports:  # type: ignore[type-var]
        for progress in reports:
            seen.append(progress)
            if progress.step == step:
                break
    return seen


def last_checkpoint(folder: RunFolder) -> Checkpoint:
    """The newest checkpoint of a run, which has one."""
    found = load_latest(folder.checkpoints)
    assert found is not None
    return found


def differing(one: RunFolder, other: RunFolder) -> list[str]:
    """The tensors of two runs' last checkpoints that are not equal to the bit."""
    a, b = (last_checkpoint(folder).tensors for folder in (one, other))
    assert a.keys() == b.keys()
    return [name for name in a if not torch.equal(a[name], b[name])]


def lab_with_a_run(root: Path, spec: RunSpec | None = None) -> Lab:
    """A lab with one trained run, `small_run()` if nothing else is said."""
    lab, spec = Lab.at(root), spec or small_run()
    run = lab.run_of(spec)
    run.create(spec)
    train_until(spec, run.path)
    run.finish(RunState.COMPLETED, step=spec.train.steps)
    return lab


def finished(steps: Measuring[T]) -> T:
    """What a measuring returns, without a break."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found


def evaluate(*what: Any, **how: Any) -> dict[str, float]:
    return finished(measuring(*what, **how))


def batches(work: Callable[..., Any]) -> Callable[..., Iterator[tuple[int, int]]]:
    """An evaluation in one batch: what it does, as the trial carries it out."""

    def measuring(*what: Any, **how: Any) -> Iterator[tuple[int, int]]:
        work(*what, **how)
        yield from ()

    return measuring
