"""Cosine similarity between the outputs of all blocks, dense beside routed (Fig. 4)."""

# B blocks

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.points import Drawn, SweepRecords, shared_evaluation
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.results import ARROW, number, ranked_cells, ranking_key

Array = NDArray[np.float64]
Route = tuple[int, int]
FILE = "similarity.npz"
WINDOW = (
    "Mean cosine within the window of route {route} (outputs {first} to {end}): {means[0]}, dense"
    " {means[1]}. Between the window and later blocks: {means[2]}, dense {means[3]}."
)


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


def common_evaluation(runs: Iterable[RunFolder], planned: Collection[str] = ()) -> str:
    """Return the evaluation to compare: a planned one, else the most common, then the one with the
    most images; empty if there is none."""
    return shared_evaluation(runs, FILE, lambda spec: spec.get("images", 0), planned)[0]


def read_similarity(run: RunFolder, evaluation: str) -> Similarity | None:
    """Return the recorded matrix of a run under an evaluation, or `None`."""
    try:
        with np.load(run.path / "evaluations" / evaluation / FILE, allow_pickle=False) as file:
            mean = np.asarray(file["mean"], dtype=np.float64)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    routes = tuple((route.blocks[0], route.blocks[-1]) for route in run.spec().routes)
    return Similarity(run.name, routes, mean)


def similarities(lab: Lab, frame: pd.DataFrame) -> list[Similarity]:
    """Return the matrices of completed dense and routed runs, dense first, one seed per route.

    All are of one evaluation.
    """
    completed = frame[(frame["state"] == "completed") & (frame["role"] != "control")]
    completed = completed.drop_duplicates(["role", "cell"])
    ordered = completed.sort_values(["length", "start"], kind="stable")
    runs = [lab.run(run) for run in ordered["run"].drop_duplicates()]
    evaluation = common_evaluation(runs, frame.attrs.get("evaluations", ()))
    matrices = (read_similarity(run, evaluation) for run in runs)
    return [matrix for matrix in matrices if matrix is not None]


def window_means(mean: Array, route: Route) -> tuple[float, float]:
    """Return two means of a [B, B] matrix that a route is expected to change.

    The first is over pairs within the window [i-1..j]: the skipped blocks and the block before
    them. The second is over pairs of a block in the window and a later block.
    """
    inside = slice(max(route[0] - 1, 0), min(route[1], len(mean) - 1) + 1)
    square, crossing = mean[inside, inside], mean[inside, inside.stop :]
    pairs = square[np.triu_indices(len(square), k=1)]
    within, across = (float(x.mean()) if x.size else math.nan for x in (pairs, crossing))
    return within, across


def draw_similarities(
    matrices: Sequence[Similarity], axes: Sequence[style.Axes], *, route: Route | None
) -> None:
    """Draw matrices side by side on one colour scale, block 0 at the top left, routes framed.

    With `route`, dashes frame it on the dense network, and its two means are below each panel.
    """
    low = min(float(matrix.mean.min()) for matrix in matrices)
    norm = style.Normalize(np.floor(10 * low) / 10, 1.0)
    for matrix, ax in zip(matrices, axes):
        drawn, blocks = ax.imshow(matrix.mean, cmap=style.SEQUENTIAL, norm=norm), len(matrix.mean)
        ticks = range(0, blocks, 2 if blocks <= 16 else 4)
        ax.set(xticks=ticks, yticks=ticks, title=matrix.name)
        ax.set_xlabel("block", fontsize=6.5)
        ax.set_ylabel("block" if ax is axes[0] else "", fontsize=6.5)
        ax.tick_params(length=0, pad=1.5)
        ax.spines[:].set_visible(False)
        for start, end in matrix.routes or ((route,) if route else ()):
            corner, side = (start - 0.5, start - 0.5), end - start + 1
            line = "-" if matrix.routes else (0, (2.5, 1.5))
            for colour, width, dashes in (("white", 2.2, "-"), (style.BLACK, 1.0, line)):
                look: dict[str, Any] = {"ec": colour, "lw": width, "ls": dashes}
                ax.add_patch(style.Rectangle(corner, side, side, fill=False, **look))
        if route is not None:
            inside, crossing = window_means(matrix.mean, route)
            ax.set_xlabel(f"block\ninside {inside:.2f}, across {crossing:.2f}", fontsize=6.5)
    bar = axes[0].figure.colorbar(drawn, ax=list(axes), pad=0.02, aspect=25, shrink=0.8)
    bar.outline.set_visible(False)
    bar.set_label("cosine similarity")


def caption(dense: Similarity, other: Similarity) -> str:
    """Return the mean similarity inside and across a route's window, beside the dense model's."""
    start, end = other.routes[0]
    (inside, across), theirs = (window_means(m.mean, (start, end)) for m in (other, dense))
    return WINDOW.format(
        route=f"{start}{ARROW}{end}",
        first=max(start - 1, 0),
        end=end,
        means=[*map(number, (inside, theirs[0], across, theirs[1]))],
    )


def pair(records: SweepRecords) -> Iterator[Drawn]:
    """Draw the similarity of block outputs, dense beside the route whose cell ranks first."""
    frame = records.frame
    matrices = similarities(records.lab, frame)
    dense = [matrix for matrix in matrices if not matrix.routes]
    routed = [matrix for matrix in matrices if matrix.routes]
    if dense and routed:
        trials = frame[frame["role"] == "trial"]
        ranked = [*ranked_cells(frame, ranking_key(frame))["cell"]]
        place = {run: ranked.index(cell) for run, cell in zip(trials["run"], trials["cell"])}
        best = min(routed, key=lambda matrix: place[matrix.run])
        fig, axes = style.figure(height=1.9, columns=2)
        draw_similarities([dense[0], best], axes, route=best.routes[0])
        yield Drawn("similarity", caption(dense[0], best), fig)
