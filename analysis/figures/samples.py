"""Images side by side: a row per run, a column per seed, so that only the network differs."""

# R rows, K columns, H height, W width, C channels

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.points import Drawn, SweepRecords, shared_evaluation
from tread_lab.config.guidance import beyond_weight
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.results import best_first, cells_frame, ranking_key, routed

Images = NDArray[np.uint8]
COLUMNS, ROWS = 12, 8  # most that are shown
AWAY = (
    "Mean difference from {first} in grey levels (of 255), over {n} images from the same noise"
    " and labels: {others}. The difference does not measure quality."
)


@dataclass(frozen=True)
class SampleRow:
    """The images of one run, [K, H, W, C], or `None` and the state that explains it."""

    name: str
    images: Images | None
    state: str = "completed"


@dataclass(frozen=True)
class SampleRows:
    """Rows that share their columns.

    Attributes:
        rows: the baseline first, then trials from best to worst, then those without images.
        drawn: how the images were drawn: `guidance w = 2, heun 6 steps`.
    """

    rows: tuple[SampleRow, ...]
    drawn: str


def sample_rows(lab: Lab, frame: pd.DataFrame) -> SampleRows | None:
    """Return images with equal seeds and labels from the most common evaluation.

    Among equally common evaluations, the one with the highest guidance weight is used. A cell shows
    its first seed. If there are more than `ROWS` cells, the best and worst are kept, and one of
    each state. Returns `None` without samples.
    """
    cells = _ordered(frame)
    done = cells["own"] == RunState.COMPLETED
    runs = [lab.run(run) for run in cells.loc[done, "run"].unique()]
    evaluation, spec = shared_evaluation(runs, "samples.npz", _weight)
    if not evaluation:
        return None
    shown, columns = [], None  # labels and shape of the first row
    for _, cell in cells.iterrows():
        state, images = str(cell["state"]), None
        if cell["own"] == RunState.COMPLETED:  # others have weights of another step
            path = lab.run(cell["run"]).path / "evaluations" / evaluation / "samples.npz"
            images, labels = _images(path)
            columns = columns or (labels and (labels, images.shape))
            if (labels, images.shape) != columns:
                images = None
        if images is None and state == RunState.COMPLETED:
            state = "unmeasured"
        shown.append(SampleRow(str(cell["cell"]), images, state))
    return SampleRows(tuple(_kept(shown)), how_drawn(spec)) if columns else None


def sheet(rows: SampleRows) -> Images:
    """Return one sheet of all images, [R(H+1), K(W+1), C]; rows without images are white."""
    shape = next(row.images.shape for row in rows.rows if row.images is not None)
    blank = np.full(shape, 255, dtype=np.uint8)
    images = np.stack([blank if row.images is None else row.images for row in rows.rows])
    border = ((0, 0), (0, 0), (0, 1), (0, 1), (0, 0))
    padded = np.pad(images, border, constant_values=255)  # [R, K, H+1, W+1, C]
    R, K, H, W, C = padded.shape
    return padded.transpose(0, 2, 1, 3, 4).reshape(R * H, K * W, C)


def draw_samples(rows: SampleRows, ax: style.Axes) -> None:
    """Draw the sheet with a name per row; rows without images show their state."""
    drawn = sheet(rows)
    grey = drawn.shape[-1] == 1
    ax.imshow(drawn[..., 0] if grey else drawn[..., :3], cmap="gray", vmin=0, vmax=255)
    height, width = drawn.shape[0] / len(rows.rows), drawn.shape[1]
    for r, row in enumerate(rows.rows):
        middle = (r + 0.5) * height - 0.5
        look: dict[str, Any] = {"va": "center", "fontsize": 6.5}
        ax.text(-0.01 * width, middle, style.arrow(row.name), ha="right", **look)
        if row.images is None:
            state = style.STATE_LOOKS[row.state]
            ax.text(width / 2, middle, f"{state.letter}  {state.text}", ha="center", **look)
    ax.set_title(f"equal seeds and labels in each column; {rows.drawn}")
    ax.set_axis_off()


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per cell: baselines, completed trials from best to worst, then the others."""
    cells = cells_frame(frame)
    if (key := ranking_key(frame)) is not None:
        cells = best_first(cells, key)
    cells = cells.assign(trial=cells["role"] != "baseline").sort_values("trial", kind="stable")
    first = frame.drop_duplicates(["role", "cell"]).assign(own=frame["state"])
    return cells.merge(first[["role", "cell", "run", "own"]], on=["role", "cell"], how="left")


def _weight(spec: Mapping[str, Any]) -> float:
    return float(spec["sampler"].get("guidance", {}).get("weight", 1.0))


def _images(path: Path) -> tuple[Images, tuple[int, ...]]:
    """Return the first images of a file and their labels, of which there may be none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            images, labels = file["arr_0"][:COLUMNS], file["arr_1"][:COLUMNS]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return np.zeros(0, np.uint8), ()
    return np.asarray(images, dtype=np.uint8), tuple(map(int, labels))


def _kept(found: Sequence[SampleRow]) -> list[SampleRow]:
    shown = [row for row in found if row.images is not None]
    endings = list({row.state: row for row in found if row.images is None}.values())
    room = max(2, ROWS - len(endings))
    if len(shown) > room:
        shown = [*shown[: room - room // 3], *shown[len(shown) - room // 3 :]]
    return [*shown, *endings]


def how_drawn(spec: Mapping[str, Any]) -> str:
    """Return how samples were drawn, from their tree: `guidance w = 2, heun 40 steps`, or
    `guidance w = 1.5 AG(250), heun 40 steps`."""
    weight, sampler = _weight(spec), spec["sampler"]
    guidance = "without guidance" if weight == 1 else f"guidance w = {weight:g}"
    guidance += beyond_weight(sampler.get("guidance", {}))
    return f"{guidance}, {sampler['solver']} {sampler['steps']} steps"


def caption(rows: SampleRows) -> str:
    """Return the mean pixel difference between the images of every run and the first row's."""
    shown = [
        (routed(row.name), row.images.astype(float)) for row in rows.rows if row.images is not None
    ]
    if len(shown) < 2:
        return "Fewer than two runs have images yet."
    (first, images), *rest = shown
    others = ", ".join(f"{name} {np.abs(own - images).mean():.0f}" for name, own in rest)
    return AWAY.format(first=first, n=len(images), others=others)


def equal_seeds(records: SweepRecords) -> Iterator[Drawn]:
    """Draw samples from equal seeds."""
    rows = sample_rows(records.lab, records.frame)
    if rows is not None and len(rows.rows) > 1:
        fig, (ax,) = style.figure(width=style.PAGE, height=0.25 + 0.53 * len(rows.rows))
        draw_samples(rows, ax)
        yield Drawn("samples", caption(rows), fig)
