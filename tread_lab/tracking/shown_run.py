"""What trackers show of a trial, read from its records: settings, metrics, curves, pictures."""

# B blocks

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from tread_lab.config.labels import MetricNames, Tree, Trial, count_label
from tread_lab.records.durable import modified, read_entries
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import (
    GAP_HELDOUT,
    IMAGES_PER_S,
    PEAK_MEMORY,
    SIMILARITY,
    TRAIN_FLOPS,
    TRAIN_SECONDS,
    metric_kind,
)
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_state import RunState
from tread_lab.records.sweep_folder import StoredPlan
from tread_lab.results import HIGH, LOW, SweepReader, is_metric, own_metrics

THUMBNAIL = 256  # pixels, as MLflow's own
PIXELS = 24  # of one entry of a matrix
COLOURS = np.array(  # dark to light, readable by the colour-blind and in print
    [(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)], dtype=float
)
GAP = (GAP_HELDOUT, GAP_HELDOUT + LOW, GAP_HELDOUT + HIGH)
BESIDE = (SIMILARITY, TRAIN_FLOPS, TRAIN_SECONDS, IMAGES_PER_S, PEAK_MEMORY)
# Columns of a frame that are no settings of a run.
RECORD = ("run", "role", "state", "reason", "baseline", "cell", "mixed", "disturbed", "steps_done")


class ShownSweep:
    """The started trials of a sweep.

    Attributes:
        frame: the rows of `trials_frame`.
        metrics: displayed columns: quality, the gap with its interval, and costs.
    """

    def __init__(self, lab: Lab, plan: StoredPlan) -> None:
        """Read the records.

        Raises:
            UserError: an evaluation of a run cannot be understood.
        """
        self.lab, self.plan, self.reader = lab, plan, SweepReader(lab, plan)
        self.frame = self.reader.trials()
        self.metrics = [c for c in own_metrics(self.frame) if c in (*GAP, *BESIDE) or _quality(c)]

    @cached_property
    def runs(self) -> list[ShownRun]:
        """One entry per distinct trial, in plan order."""
        rows = zip(self.plan.trials, self.reader.plan.trials, self.frame.to_dict("records"))
        found = [ShownRun(self, *one) for one in rows if one[2]["state"] != RunState.PENDING]
        return list({run.key: run for run in found if run.created}.values())


def _quality(column: str) -> bool:
    return ":" not in column and metric_kind(column).nature == "quality"


@dataclass(frozen=True)
class ShownRun:
    """A started trial.

    Attributes:
        planned: the trial with its planned axis values.
        trial: the same; a baseline has the axis values that distinguish it.
        row: its row in the frame.
    """

    sweep: ShownSweep
    planned: Trial[Tree]
    trial: Trial[Tree]
    row: Mapping[Any, Any]

    @property
    def folder(self) -> RunFolder:
        return self.sweep.lab.run(self.trial.run)

    @property
    def key(self) -> str:
        """Unique key: role, run, creation time of the run, and cell."""
        cell = ",".join(f"{name}={value}" for name, value in sorted(self.planned.cell.items()))
        return f"{self.trial.role}/{self.trial.run}/{self.created}/{cell}"

    @property
    def name(self) -> str:
        """Return `2->8 s=0.5 seed 0`."""
        return f"{self.row['cell']} seed {self.trial.seed}"

    @property
    def state(self) -> RunState:
        return RunState(self.row["state"])

    @property
    def created(self) -> int:
        """Creation time of the run in milliseconds, or 0."""
        return _milliseconds(modified(self.folder.path / "spec.yaml"))

    @property
    def ended(self) -> int | None:
        """Time of the last record in milliseconds; `None` while running."""
        if self.state is RunState.RUNNING:
            return None
        last = (self.folder.path / name for name in ("result.json", "log.jsonl", "spec.yaml"))
        return _milliseconds(next(filter(None, map(modified, last)), None))

    @property
    def step(self) -> int:
        """Last step of the run, or 0 before its end."""
        return 0 if pd.isna(self.row["steps_done"]) else int(self.row["steps_done"])

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the run and its cell, named as in frames."""
        own = {name: x for name, x in self.row.items() if name not in RECORD}
        return {k: x for k, x in own.items() if not is_metric(k) and not pd.isna(x) and x != ""}

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics at the end, and training cost; a baseline's gap is 0."""
        own = {n: float(self.row[n]) for n in self.sweep.metrics if not pd.isna(self.row[n])}
        dense = self.trial.role == "baseline" and self.state is RunState.COMPLETED
        return own | (dict.fromkeys(GAP, 0.0) if dense and GAP_HELDOUT in self.row else {})

    @property
    def during(self) -> dict[int, dict[str, float]]:
        """The same metrics by step before the end."""
        return {
            step: {name: x for name, x in values.items() if name in self.sweep.metrics}
            for step, values in self.sweep.reader.measured_at(self.trial).items()
        }

    @property
    def measured(self) -> int:
        """Time of the last evaluation of the run or its baseline, in milliseconds."""
        runs = map(self.sweep.lab.run, {self.trial.run, self.trial.baseline or self.trial.run})
        return max(_milliseconds(modified(run.path / "evaluations")) for run in runs)

    @property
    def tags(self) -> dict[str, str]:
        """Tags for filters and groups; seeds of a cell share the tag `cell`."""
        origin = (self.folder.origin() or [{}])[-1]
        return {
            **{name: str(self.row[name]) for name in ("cell", "role", "state", "reason")},
            **{flag: "True" if self.row[flag] else "" for flag in ("mixed", "disturbed")},
            "compared": self.sweep.plan.comparison if self.trial.baseline else "",
            "signature": self.trial.run,
            "code": str(origin.get("code") or ""),
            "device": str(origin.get("device") or ""),
        }

    def curves(self) -> Iterator[tuple[str, float, int, int]]:
        """Yield key, value, time in milliseconds and step of the log, one for each key and step.

        For steps repeated after a resume, the first value is kept, because it may have been sent
        already. Infinity becomes NaN, which keeps curves readable.
        """
        seen = set[tuple[str, int]]()
        for entry in read_entries(self.folder.log_path):
            if (entry.key, entry.step) not in seen:
                seen.add((entry.key, entry.step))
                value = math.nan if math.isinf(entry.value) else entry.value
                yield entry.key, value, _milliseconds(entry.time), entry.step

    def pictures(self) -> Iterator[Picture]:
        """Yield the pictures of the run, after its end."""
        if self.state.ended:
            yield from pictures_of(self.folder, self.sweep.reader.names, self.step)


def _milliseconds(seconds: float | None) -> int:
    return round(1000 * (seconds or 0.0))


@dataclass(frozen=True)
class Picture:
    """A picture of an evaluation.

    Attributes:
        key: name of its evaluation: `samples_64`, `samples_1k_w_2`, `layer_similarity`.
        step: step of the evaluated weights.
        png: bytes of its file.
    """

    key: str
    step: int
    png: bytes

    @property
    def thumbnail(self) -> bytes:
        """A small copy as WebP."""
        with Image.open(io.BytesIO(self.png)) as image:
            image.thumbnail((THUMBNAIL, THUMBNAIL))
            return _stored(image.convert("RGB"), "WEBP", lossless=True)


def pictures_of(run: RunFolder, names: MetricNames, end: int) -> Iterator[Picture]:
    """Yield the pictures of the finished evaluations of a run.

    Args:
        end: the step of the run's last weights.
    """
    for evaluation in filter(lambda folder: folder.done, run.evaluations()):
        tree = (evaluation.read() or {}).get("spec", {})
        kind = tree["kind"]
        kind = f"samples@{count_label(tree['count'])}" if kind == "samples" else kind
        name = names.name(kind, evaluation.path.name, tree)
        key, step = re.sub(r"[^\w.-]+", "_", name).strip("_"), tree.get("step") or end
        for path in evaluation.path.glob("grid.png"):
            yield Picture(key, step, path.read_bytes())
        for path in evaluation.path.glob("similarity.npz"):
            with np.load(path, allow_pickle=False) as arrays:
                yield Picture(key, step, _heatmap(np.asarray(arrays["mean"], dtype=np.float64)))


def _heatmap(mean_BB: NDArray[np.float64]) -> bytes:
    """Return a matrix as a PNG picture; colours run from 0 to 1 in every run, so runs compare."""
    place_BB = np.nan_to_num(mean_BB).clip(0, 1) * (len(COLOURS) - 1)
    anchors = np.arange(len(COLOURS))
    channels = [np.interp(place_BB, anchors, COLOURS[:, c]) for c in range(3)]
    image = Image.fromarray(np.stack(channels, axis=-1).round().astype(np.uint8))
    size = (PIXELS * image.width, PIXELS * image.height)
    return _stored(image.resize(size, Image.Resampling.NEAREST), "PNG")


def _stored(image: Image.Image, kind: str, **options: bool) -> bytes:
    """Return the bytes of the file of a picture."""
    content = io.BytesIO()
    image.save(content, format=kind, **options)
    return content.getvalue()
