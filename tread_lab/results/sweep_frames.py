"""A sweep as data frames, for Python: its trials, its cells and the logs of its runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from tread_lab.config.errors import UserError, suggest
from tread_lab.config.units import counted, counts_text
from tread_lab.records.lab import Lab
from tread_lab.results.cells import cells_frame
from tread_lab.results.intervals import t_interval
from tread_lab.results.ranking import ranking_key
from tread_lab.results.runs import SweepReader, trials_frame


@dataclass(frozen=True)
class SweepFrames:
    """One sweep of a lab, as lazily read data frames."""

    lab: Lab
    name: str

    @cached_property
    def trials(self) -> pd.DataFrame:
        """The rows of `trials_frame`: one per trial, with its state, settings and metrics."""
        return trials_frame(self.lab, self.name)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """The rows of `cells_frame`: one per cell, each metric with its mean and interval."""
        return cells_frame(self.trials)

    @cached_property
    def training(self) -> pd.DataFrame:
        """Rows of curves over training, `SweepReader.training`."""
        return SweepReader.of(self.lab, self.name).training()

    def history(self, *keys: str) -> pd.DataFrame:
        """Return the logged values of every run: run, step, key, value; all keys by default."""
        return history_frame(self.lab, self.name, keys)

    def metric(self, start: str) -> str:
        """Return the sweep's first sample metric with this prefix: `fd` for `fd[inception]@5k`.

        Raises:
            UserError: no such metric was measured.
        """
        columns = (str(c) for c in self.trials.columns if "@" in str(c) and ":" not in str(c))
        names = (column.split(" ")[0] for column in columns if column.startswith(start))
        if (name := next(names, None)) is None:
            raise UserError(
                f"{self.name} has no {start}; measure it with `tread-lab evaluate {self.name}"
                " fd@1k`"
            )
        return name

    def __repr__(self) -> str:
        runs = self.trials.drop_duplicates("run")
        states = counts_text(Counter(map(str, runs["state"])))
        count, models = counted(len(runs), "run"), ", ".join(runs["model"].unique())
        seeds = counted(self.trials["seed"].nunique(), "seed")
        return f"{self.name}: {count} of {models} ({states}), {seeds}"


def open_sweep(name: str, root: str | os.PathLike[str] | None = None) -> SweepFrames:
    """Return a planned sweep as data frames.

    Args:
        name: the sweep; TREAD_LAB_SWEEP overrides it.
        root: folder of its lab; by default TREAD_LAB_ROOT, else the nearest folder `lab` with
            sweeps here or in a parent folder.

    Raises:
        UserError: no such folder or sweep; suggests a near miss.
    """
    places = (folder / "lab" for folder in (Path.cwd(), *Path.cwd().parents))
    nearest = next((place for place in places if (place / "sweeps").is_dir()), None)
    lab = Lab.existing(root or os.environ.get("TREAD_LAB_ROOT") or nearest)
    return SweepFrames(lab, lab.known_sweep(os.environ.get("TREAD_LAB_SWEEP") or name).name)


def history_frame(lab: Lab, sweep: str, keys: Collection[str] = ()) -> pd.DataFrame:
    """Return every logged value of every run of a sweep, each run once.

    Args:
        keys: keys to keep; all if empty.

    Raises:
        UserError: no run has logged one of the keys; suggests a near miss.
    """
    runs = dict.fromkeys(trial.run for trial in lab.known_sweep(sweep).plan().trials)
    rows = [(run, e.step, e.key, e.value) for run in runs for e in lab.run(run).entries()]
    frame = pd.DataFrame(rows, columns=["run", "step", "key", "value"])
    logged = sorted(frame["key"].unique())
    if unknown := [key for key in keys if logged and key not in logged]:
        raise UserError(f"no key {unknown[0]!r} was logged{suggest(unknown[0], logged)}")
    return frame[frame["key"].isin(keys)].reset_index(drop=True) if keys else frame


def versus(lab: Lab, first: str, second: str) -> tuple[str, pd.DataFrame]:
    """Return the metric of the first sweep, and a row for each cell that both have.

    Columns: name, value (the second sweep's less the first's, a mean over the seeds that both
    have), low and high of its 95% interval over seeds, seeds and state.

    Raises:
        UserError: a sweep is unknown or unmeasured, or the two share no cell and metric.
    """
    frames = [trials_frame(lab, name) for name in (first, second)]
    keys = [ranking_key(frame) for frame in frames]
    metric = keys[0]
    if metric is None or metric not in frames[1]:
        raise UserError(
            f"report: {second} must measure {metric} as {first} does. Try evaluating it."
        )
    columns = ["role", "cell", "seed", metric]
    one, other = (frame[columns].dropna(subset=[metric]) for frame in frames)
    pairs = one.merge(other, on=["role", "cell", "seed"], suffixes=(":a", ":b"))
    if pairs.empty:
        raise UserError(f"report: {first} and {second} must share a measured cell, got none.")
    pairs["apart"] = pairs[f"{metric}:b"] - pairs[f"{metric}:a"]
    rows = []
    for (_, cell), own in pairs.groupby(["role", "cell"], sort=False):
        values = own["apart"].to_numpy(float)
        ends = t_interval(values) if len(values) > 1 else (float(values[0]), np.nan, np.nan)
        rows.append((cell, *ends, len(values), "completed"))
    return metric, pd.DataFrame(rows, columns=["name", "value", "low", "high", "seeds", "state"])
