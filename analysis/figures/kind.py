"""What all figures have in common: the records that they show, and a figure with its caption."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pandas as pd

from tread_lab.analysis.figures.style import Figure
from tread_lab.frames import own_metrics, ranking_key
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import GAP_HELDOUT, metric_kind

LONGEST = 80  # characters of a metric or panel in a file name


@dataclass(frozen=True)
class SweepRecords:
    """What the figures of a sweep, or of one panel of it, are drawn from.

    Attributes:
        frame: rows of `trials_frame`.
        history: rows of `history_frame`, the training losses.
        training: rows of `training_frame`, for curves over training.
        equal_steps: rows of `equal_steps_frame`; `None` where it is.
    """

    lab: Lab
    frame: pd.DataFrame
    history: pd.DataFrame
    training: pd.DataFrame
    equal_steps: pd.DataFrame | None = None

    @property
    def compared(self) -> list[str]:
        """What trials are compared with dense by: the loss gap, then metrics of samples."""
        gap = [GAP_HELDOUT] if GAP_HELDOUT in self.frame else []
        return [*gap, *sample_metrics(self.frame)]

    def title(self, measured_as: str = "") -> str:
        """Return the title of a drawing of this sweep, for example beside a published one."""
        models, question = self.frame["model"].unique(), self.frame.attrs.get("comparison", "")
        network = models[0] if len(models) == 1 else f"{len(models)} networks"
        said = f"({measured_as or 'this sweep'})"
        return f"{network} {question}\n{said}" if question else f"{network} {said}"

    def compared_parts(self, metric: str) -> Iterator[SweepRecords]:
        """Give the sweep's own records, then those of another question that its runs answer."""
        yield self
        other = self.equal_steps
        if other is None or metric not in other:
            return
        if other.loc[other["role"] == "trial", metric].notna().any():
            yield replace(self, frame=other, equal_steps=None)


@dataclass(frozen=True)
class Drawn:
    """A drawn figure; `name` is that of its files, without the ending."""

    name: str
    caption: str
    figure: Figure


def sample_metrics(frame: pd.DataFrame) -> list[str]:
    """Return the sweep's own measures of quality of samples."""
    columns = [c for c in own_metrics(frame) if "@" in c and ":" not in c]
    return [c for c in columns if metric_kind(c).nature == "quality"]


def quality_metrics(frame: pd.DataFrame) -> list[str]:
    """Return the metrics of quality: the `ranking_key` first, then those of samples."""
    key = ranking_key(frame)
    return list(dict.fromkeys([*([key] if key else []), *sample_metrics(frame)]))


def named(name: str, metric: str) -> str:
    """Return the name of a metric's files: `pareto-gap-heldout`."""
    return f"{name}-{slug(metric)}"


def slug(text: str) -> str:
    """Return a metric or panel as part of a file name; a long one ends with its digest."""
    short = re.sub(r"[^\w.=+-]+", "-", text).rstrip("-")
    if len(short) <= LONGEST:
        return short
    return f"{short[: LONGEST - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
