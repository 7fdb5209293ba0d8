"""The cost of a step against tokens, depth, rate and batch, dense and routed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gpu_phases.shared import Bench
from tread_lab.config import RunSpec
from tread_lab.cost.training import cost

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


def measure(bench: Bench, axes: Iterable[str] = GRIDS["cuda"].axes) -> None:
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
