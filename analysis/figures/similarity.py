"""Cosine similarity between the outputs of all blocks, dense beside routed (Fig. 4)."""

# B blocks

from __future__ import annotations

import math
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, SweepRecords, figure_kind
from tread_lab.frames import ARROW, number, ranked_cells, ranking_key
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder

Array = NDArray[np.float64]
Route = tuple[int, int]
FILE = "similarity.npz"


@dataclass(frozen=True)
class Similarity:
    """The similarity matrix of one run.

    Attributes:
        run: its signature.
        routes: (i, j) of its routes, both ends inclusive; none for a dense run.
        mean: [B, B], mean cosine of the outputs of two blocks over images, levels and tokens.
    """

    run: str
    routes: tuple[Route, ...]
    mean: Array

    @property
    def name(self) -> str:
        """`dense`, or `route 2->8`."""
        texts = " + ".join(f"{start}->{end}" for start, end in self.routes)
        return f"route {style.arrow(texts)}" if texts else "dense"


def common_evaluation(runs: Iterable[RunFolder], planned: Collection[str] = ()) -> str | None:
    """Return the evaluation whose matrices are compared: a planned one, else that of most runs, of
    these the one over most images; `None` without any."""
    having: Counter[str] = Counter()
    images: dict[str, int] = {}
    for folder in (folder for run in runs for folder in run.end_evaluations()):
        if (folder.path / FILE).exists():
            having[folder.path.name] += 1
            images[folder.path.name] = (folder.read() or {}).get("spec", {}).get("images", 0)
    order = {name: (name in planned, having[name], images[name], name) for name in having}
    return max(order, key=lambda name: order[name], default=None)


def read_similarity(run: RunFolder, evaluation: str | None) -> Similarity | None:
    """Return the matrix of a run that an evaluation has recorded; `None` without one."""
    try:
        with np.load(run.path / "evaluations" / str(evaluation) / FILE, allow_pickle=False) as file:
            mean = np.asarray(file["mean"], dtype=np.float64)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    routes = tuple((route.blocks[0], route.blocks[-1]) for route in run.spec().routes)
    return Similarity(run.name, routes, mean)


def similarities(lab: Lab, frame: pd.DataFrame) -> list[Similarity]:
    """Return the matrices of all completed runs of a frame, dense ones first; one seed a route.

    All are of one evaluation.
    """
    completed = frame[frame["state"] == "completed"].drop_duplicates(["role", "cell"])
    ordered = completed.sort_values(["length", "start"], kind="stable")
    runs = [lab.run(run) for run in ordered["run"].drop_duplicates()]
    evaluation = common_evaluation(runs, frame.attrs.get("evaluations", ()))
    matrices = (read_similarity(run, evaluation) for run in runs)
    return [matrix for matrix in matrices if matrix is not None]


def window(route: Route, blocks: int) -> slice:
    """Return the blocks [i-1..j] that a route draws together; [0..j] for a route from the start."""
    start, end = route
    return slice(max(start - 1, 0), min(end, blocks - 1) + 1)


def window_means(mean: Array, route: Route) -> tuple[float, float]:
    """Return what a route is expected to change, in two means of a [B, B] matrix.

    The first is over pairs within its window [i-1..j]: the blocks that routed tokens jump, and the
    one whose output they carry. The second is over pairs of a block in the window and a later one.
    """
    inside = window(route, len(mean))
    square = mean[inside, inside]
    pairs = square[np.triu_indices(len(square), k=1)]
    crossing = mean[inside, inside.stop :]
    return (
        float(pairs.mean()) if pairs.size else math.nan,
        float(crossing.mean()) if crossing.size else math.nan,
    )


def draw_similarity(
    matrix: Similarity, ax: style.Axes, *, norm: style.Normalize, route: Route | None
) -> None:
    """Draw one matrix, block 0 at the top left, with a route's frame: dashed on a dense model."""
    ax.imshow(matrix.mean, cmap=style.SEQUENTIAL, norm=norm)
    B = len(matrix.mean)
    ticks = range(0, B, 2 if B <= 16 else 4)
    ax.set_xticks(ticks)
    ax.set_yticks(ticks)
    ax.tick_params(length=0, pad=1.5)
    ax.spines[:].set_visible(False)
    frames = matrix.routes or ((route,) if route else ())
    line = "-" if matrix.routes else (0, (2.5, 1.5))
    for start, end in frames:
        side = end - start + 1
        corner = (start - 0.5, start - 0.5)
        for colour, width, dashes in (("white", 2.2, "-"), (style.BLACK, 1.0, line)):
            box = style.Rectangle(
                corner, side, side, fill=False, edgecolor=colour, linewidth=width, linestyle=dashes
            )
            ax.add_patch(box)


def draw_similarities(
    matrices: Sequence[Similarity], axes: Sequence[style.Axes], *, route: Route | None
) -> None:
    """Draw matrices side by side on one colour scale; with a route, its two means below each."""
    low = min(float(matrix.mean.min()) for matrix in matrices)
    norm = style.Normalize(np.floor(10 * low) / 10, 1.0)
    for matrix, ax in zip(matrices, axes):
        draw_similarity(matrix, ax, norm=norm, route=route)
        ax.set_title(matrix.name)
        if route is not None:
            inside, crossing = window_means(matrix.mean, route)
            ax.set_xlabel(f"inside {inside:.2f}, across {crossing:.2f}", fontsize=6.5)
    used = list(axes[: len(matrices)])
    bar = used[0].figure.colorbar(
        used[-1].images[0], ax=list(axes), pad=0.02, aspect=25, shrink=0.8
    )
    bar.outline.set_visible(False)
    bar.set_label("cosine similarity")


def caption(dense: Similarity, other: Similarity) -> str:
    """Return the mean similarity inside and across a route's window, beside the dense model's."""
    route = other.routes[0]
    (inside, crossing), theirs = (window_means(m.mean, route) for m in (other, dense))
    first = max(route[0] - 1, 0)
    return (
        f"Inside the window of route {route[0]}{ARROW}{route[1]} (outputs {first} to {route[1]})"
        f" the mean cosine is {number(inside)}, in the dense model {number(theirs[0])};"
        f" from the window to later blocks it is {number(crossing)} against"
        f" {number(theirs[1])}."
    )


def _best(frame: pd.DataFrame, routed: Sequence[Similarity]) -> Similarity:
    """Return the route whose cell ranks first; the first route where nothing ranks."""
    trials = frame[frame["role"] == "trial"]
    ranked = [*ranked_cells(frame, ranking_key(frame))["cell"]]
    cell_of = dict(zip(trials["run"], trials["cell"]))
    return min(routed, key=lambda matrix: ranked.index(cell_of[matrix.run]))


@figure_kind(each_panel=True)
def pair(records: SweepRecords) -> Iterator[Drawn]:
    """Similarity of block outputs"""
    matrices = similarities(records.lab, records.frame)
    dense = [matrix for matrix in matrices if not matrix.routes]
    routed = [matrix for matrix in matrices if matrix.routes]
    if dense and routed:
        best = _best(records.frame, routed)
        fig, axes = style.figure(height=1.75, columns=2)
        draw_similarities([dense[0], best], axes, route=best.routes[0])
        yield Drawn("similarity", caption(dense[0], best), fig)
