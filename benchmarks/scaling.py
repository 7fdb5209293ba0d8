"""Scaling curves: the cost of an image against tokens, depth, rate, batch, runs and workers.

    python benchmarks/scaling.py --out OUT [--device cuda] [--axes tokens workers]
    python benchmarks/scaling.py --out OUT --axes              (draw OUT/results.jsonl alone)

Points are medians of whole steps, dense and routed. Results go to OUT/results.jsonl as they are
found, the picture to OUT/scaling.png. A device is a GPU or a core of a CPU.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from gpu_phases.shared import Bench

from tread_lab.analysis.figures.style import BLACK, CYCLE, PAGE, Axes, figure, show
from tread_lab.config import RunSpec
from tread_lab.cost.training import cost
from tread_lab.train.device import model, pick

Row = dict[str, Any]
AXES = {  # axis -> what it is called, its scale
    "tokens": ("tokens of an image", "log"),
    "depth": ("depth (blocks)", "linear"),
    "rate": ("rate of the route 2→B-4", "linear"),
    "batch": ("batch (images a step)", "log"),
    "runs a device": ("runs on one device", "log"),
    "workers": ("workers, a device each", "log"),
}
LOOKS = {"dense": ("D", "--", BLACK), "routed": ("o", "-", CYCLE[0])}
MOST_RUNS = 4  # on one device
Place = tuple[str, int | None]  # a device, and the core that a process keeps to
Point = Mapping[str, float]  # depth, tokens of an image, rate of 2->B-4, batch


@dataclass(frozen=True)
class Grid:
    """A base point, and the values that each axis takes while the others stay at the base.

    Attributes:
        width, heads: of the network; its patch is 2.
    """

    width: int
    heads: int
    base: Point
    axes: Mapping[str, Sequence[float]]


GRIDS = {
    "cuda": Grid(
        width=768,
        heads=12,
        base={"tokens": 256, "depth": 12, "rate": 0.5, "batch": 64},
        axes={
            "rate": (0.25, 0.5, 0.75, 0.9),
            "depth": (8, 12, 24),
            "batch": (16, 64, 256),
            "tokens": (64, 256, 1024, 4096),
        },
    ),
    "cpu": Grid(
        width=64,
        heads=2,
        base={"tokens": 256, "depth": 8, "rate": 0.5, "batch": 8},
        axes={
            "rate": (0.25, 0.5, 0.75),
            "depth": (6, 8, 12, 16),
            "batch": (4, 8, 16, 32),
            "tokens": (64, 256, 1024, 4096),
        },
    ),
}


def measure(bench: Bench, axes: Iterable[str]) -> None:
    """Vary one thing at a time."""
    grid = GRIDS[bench.device.type]
    for axis in axes:
        for value in grid.axes[axis][: 1 if bench.small else None]:
            with bench.guarded("scaling", axis=axis, at=value):
                runs = runs_at(bench, grid, _point(grid, axis, value))
                say(bench, axis, value, runs, milliseconds(bench, runs))


def _point(grid: Grid, axis: str, value: float) -> Point:
    """Return a point of an axis; of longer images a step has fewer, at least one."""
    base = grid.base
    if axis == "tokens":
        return {**base, axis: value, "batch": max(base["batch"] * base[axis] // value, 1)}
    return {**base, axis: value}


def runs_at(bench: Bench, grid: Grid, point: Point) -> dict[str, RunSpec]:
    """Return the dense and the routed run of a point."""
    model = {"depth": point["depth"], "width": grid.width, "heads": grid.heads, "patch": 2}
    route = {"start": 2, "end": "B-4", "rate": point["rate"]}
    side = 2 * math.isqrt(int(point["tokens"]))
    routes = {"dense": (), "routed": (route,)}
    batch = int(point["batch"])
    return {kind: bench.spec(model, on, batch, side=side) for kind, on in routes.items()}


def milliseconds(
    bench: Bench, runs: Mapping[str, RunSpec], ready: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """Return the median step of each run; `ready` is called once it is warm."""
    times = {}
    for kind, spec in runs.items():
        with bench.live(spec) as run:
            step = partial(run.train_step, run.batches.at(0), lr=1e-4)
            bench.milliseconds(step, warm=1, count=1)
            ready()
            times[kind] = bench.milliseconds(step, warm=0, count=6)
    return times


def say(
    bench: Bench,
    axis: str,
    at: float,
    runs: Mapping[str, RunSpec],
    times: Mapping[str, float],
    processes: int = 1,
) -> None:
    """Write the times of a point, and the gain beside that of the FLOPs.

    Args:
        times: milliseconds of a step of each run.
        processes: that make a step in this time.
    """
    dense, routed = runs["dense"], runs["routed"]
    row: dict[str, float] = {"images": processes * dense.train.batch}
    row |= {f"{kind} ms": ms for kind, ms in times.items()}
    gain = times["dense"] / times["routed"]
    bench.say("scaling", axis=axis, at=at, **row, measured=gain, predicted=cost(routed).speedup)


def places(axis: str, device: torch.device) -> list[list[Place]]:
    """Return where the processes of each point run: 1, 2, 4 ... on one device, or one on each."""
    if device.type == "cpu":
        devices: list[Place] = [("cpu", core) for core in sorted(os.sched_getaffinity(0))]
    else:
        devices = [(f"cuda:{n}", None) for n in range(torch.cuda.device_count())]
    if axis == "runs a device":
        devices = devices[:1] * MOST_RUNS
    return [devices[: 2**n] for n in range(len(devices).bit_length())]


def beside(bench: Bench, axis: str) -> None:
    """Time steps of the base point in several processes at once."""
    grid = GRIDS[bench.device.type]
    runs = runs_at(bench, grid, grid.base)
    context = multiprocessing.get_context("spawn")
    for taken in places(axis, bench.device):
        count = len(taken)
        with context.Pool(count, _begin, [context.Barrier(count, timeout=120)]) as pool:
            found = pool.map(_steps, [(bench.out, place) for place in taken], chunksize=1)
        times = {kind: sum(times[kind] for times in found) / count for kind in runs}
        say(bench, axis, count, runs, times, processes=count)


_barrier: threading.Barrier  # where the processes of a point wait for each other


def _begin(barrier: threading.Barrier) -> None:
    global _barrier
    _barrier = barrier


def _steps(task: tuple[Path, Place]) -> dict[str, float]:
    """Return one process's milliseconds of a step, while the others make theirs."""
    out, (device, core) = task
    if core is not None:
        os.sched_setaffinity(0, {core})
    bench = Bench("scaling", out, device, small=False)
    grid = GRIDS[bench.device.type]
    return milliseconds(bench, runs_at(bench, grid, grid.base), _barrier.wait)


def draw(ax: Axes, axis: str, rows: Sequence[Row]) -> None:
    """Draw the curves of one axis."""
    name, scale = AXES[axis]
    at = [row["at"] for row in rows]
    for kind, (marker, line, colour) in LOOKS.items():
        costs = [row[f"{kind} ms"] / row["images"] for row in rows]
        ax.plot(at, costs, marker + line, color=colour, label=kind)
    if scale == "log":
        ax.set_xscale("log", base=2)
    if axis == "tokens":
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
    else:
        ax.set_ylim(0, 1.1 * ax.dataLim.ymax)
    ax.set_xticks(at, [f"{value:g}" for value in at])
    ax.set(xlabel=name, ylabel="time an image (ms)")


def picture(results: Path) -> bytes:
    """Return the picture of all measured curves."""
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    curves = {axis: [r for r in rows if r.get("axis") == axis and "images" in r] for axis in AXES}
    curves = {axis: found for axis, found in curves.items() if found}
    lines = -(-len(curves) // 3)
    fig, axes = figure(
        width=PAGE, height=1.9 * lines + 0.3, rows=lines, columns=min(len(curves), 3)
    )
    for ax, (axis, found) in zip(axes, curves.items()):
        draw(ax, axis, found)
    for ax in axes[len(curves) :]:
        ax.set_axis_off()
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return show(fig, dpi=200).png


def main() -> None:
    """Measure the axes that are asked for, and draw all that were measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device")
    parser.add_argument("--axes", nargs="*", choices=AXES, default=list(AXES))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    device, results = pick(options.device), options.out / "results.jsonl"
    bench = Bench("scaling", options.out, str(device), small=False)
    if options.axes and not results.exists():
        bench.say("device", name=model(device), torch=torch.__version__)
    grid = GRIDS[device.type]
    measure(bench, [axis for axis in options.axes if axis in grid.axes])
    for axis in options.axes:
        if axis not in grid.axes:
            beside(bench, axis)
    (options.out / "scaling.png").write_bytes(picture(results))


if __name__ == "__main__":
    main()
