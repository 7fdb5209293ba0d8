"""A lab as data frames, for Python: its runs; the trials, cells, gaps and logs of each sweep."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from tread_lab.config.errors import UserError, suggest
from tread_lab.config.labels import run_label
from tread_lab.config.units import counted, counts_text
from tread_lab.records.lab import Lab, run_status
from tread_lab.records.run_state import RunState
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.results.cells import COUNT, HIGH, KEPT, LOW, cells_frame
from tread_lab.results.runs import sweep_plan, training_frame, trials_frame

RUN_COLUMNS = ("run", "label", "state", "step", "attempts", "reason")
GAP_COLUMNS = ("run", "cell", "seed", "baseline", "gap", "mean", "low", "high", "n", "kept")


@dataclass(frozen=True)
class SweepFrames:
    """One sweep of a lab; each frame is read when it is first used, and once."""

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
    def gaps(self) -> pd.DataFrame:
        """The rows of `gaps_frame`: one per trial and gap."""
        return gaps_frame(self.trials)

    @cached_property
    def training(self) -> pd.DataFrame:
        """The rows of curves over training: those of `steps_frame` where runs were measured before
        their end, else `trials`, of which a sweep over numbers of training steps has several."""
        return training_frame(self.lab, self.name)

    def history(self, *keys: str) -> pd.DataFrame:
        """Return the logged values of every run: run, step, key, value; all keys by default."""
        return history_frame(self.lab, self.name, keys=keys or None)

    def metric(self, start: str) -> str:
        """Return the sweep's first metric of samples that begins so: `fd` for `fd[inception]@5k`.

        Raises:
            UserError: nothing of the kind was measured.
        """
        columns = (str(c) for c in self.trials.columns if "@" in str(c) and ":" not in str(c))
        names = (column.split(" ")[0] for column in columns if column.startswith(start))
        if (name := next(names, None)) is None:
            raise UserError(
                f"{self.name} measured no {start}; `tread-lab evaluate {self.name} fd@1k`"
            )
        return name

    def __repr__(self) -> str:
        runs = self.trials.drop_duplicates("run")
        states = counts_text(Counter(map(str, runs["state"])))
        count, models = counted(len(runs), "run"), ", ".join(runs["model"].unique())
        seeds = counted(self.trials["seed"].nunique(), "seed")
        return f"{self.name}: {count} of {models} ({states}), {seeds}"


@dataclass(frozen=True)
class LabFrames:
    """The runs and sweeps of a lab."""

    lab: Lab

    @property
    def sweeps(self) -> list[str]:
        """The names of the planned sweeps."""
        return self.lab.sweeps()

    @property
    def runs(self) -> pd.DataFrame:
        """One row per run of the lab: its label, its `RunState`, its last step, its attempts."""
        rows = []
        for folder in self.lab.runs():
            status, spec = run_status(folder), folder.readable_spec()
            progress = (status.state, status.step, len(status.attempts), status.reason)
            rows.append((status.run, "" if spec is None else run_label(spec), *progress))
        return pd.DataFrame(rows, columns=[*RUN_COLUMNS])

    def sweep(self, name: str) -> SweepFrames:
        """Return a planned sweep.

        Raises:
            UserError: the lab has no such sweep; suggests a near miss.
        """
        return SweepFrames(self.lab, self.lab.known_sweep(name).name)


def open_lab(path: str | os.PathLike[str] | None = None) -> LabFrames:
    """Return a lab as data frames.

    Args:
        path: its folder; by default TREAD_LAB_ROOT, else the nearest folder `lab` with sweeps
            here or above.

    Raises:
        UserError: there is no such folder.
    """
    lab = Lab.at(path or os.environ.get("TREAD_LAB_ROOT") or nearest_lab())
    if not lab.root.is_dir():
        raise UserError(f"no lab at {lab.root}; open_lab(path) or TREAD_LAB_ROOT names its folder")
    return LabFrames(lab)


def open_sweep(name: str) -> SweepFrames:
    """Return a sweep of `open_lab()` of which a run is completed; notebooks open theirs so.

    Args:
        name: the sweep; TREAD_LAB_SWEEP, where it is set, names another.

    Raises:
        UserError: it was never planned there, or no run is completed; says what to run.
    """
    name = os.environ.get("TREAD_LAB_SWEEP") or name
    lab = Lab.at(os.environ.get("TREAD_LAB_ROOT") or nearest_lab())
    if name not in lab.sweeps():
        raise UserError(
            f"no sweep {name} in this lab yet: run `tread-lab sweep {name}.yaml`, or set"
            " TREAD_LAB_ROOT to another lab and TREAD_LAB_SWEEP to another sweep"
        )
    sweep = SweepFrames(lab, name)
    if not (sweep.trials["state"] == RunState.COMPLETED).any():
        raise UserError(f"no run of {name} is done yet: `tread-lab sweep {name}.yaml` runs them")
    return sweep


def nearest_lab() -> Path | None:
    """Return the folder `lab` with sweeps in this folder or the nearest one above, else `None`."""
    here = Path.cwd()
    return next((f / "lab" for f in (here, *here.parents) if (f / "lab" / "sweeps").is_dir()), None)


def gaps_frame(trials: pd.DataFrame) -> pd.DataFrame:
    """Return one row per trial and gap that was measured, from the rows of `trials_frame`.

    Columns: run, cell, seed, baseline, gap (such as `gap/heldout`), mean, low, high (95% over n
    held-out images of this pair of runs), kept (the share of variance that pairing left).
    """
    ends = {"mean": "", "low": LOW, "high": HIGH, "n": COUNT, "kept": KEPT}
    parts = []
    gaps = (str(column) for column in trials.columns if str(column).startswith("gap/"))
    for gap in (gap for gap in gaps if gap + LOW in trials.columns):
        own = trials[(trials["role"] == "trial") & trials[gap].notna()]
        values = {name: own[gap + end] for name, end in ends.items()}
        parts.append(own.assign(gap=gap, **values)[[*GAP_COLUMNS]])
    known = [part for part in parts if len(part)] or [pd.DataFrame(columns=[*GAP_COLUMNS])]
    return pd.concat(known, ignore_index=True)


def history_frame(
    lab: Lab, sweep: str | SweepFolder, keys: Iterable[str] | None = None
) -> pd.DataFrame:
    """Return every logged value of every run of a sweep, each run once.

    Args:
        keys: the keys to keep; `None` keeps all.

    Raises:
        UserError: no run has logged one of the keys; suggests a near miss.
    """
    logged: set[str] = set()
    wanted = None if keys is None else set(keys)
    columns: dict[str, list[Any]] = {"run": [], "step": [], "key": [], "value": []}
    for name in dict.fromkeys(trial.run for trial in sweep_plan(lab, sweep).trials):
        for entry in lab.run(name).entries():
            logged.add(entry.key)
            if wanted is None or entry.key in wanted:
                values = (name, entry.step, entry.key, entry.value)
                for column, value in zip(columns.values(), values):
                    column.append(value)
    if unknown := sorted((wanted or set()) - logged) if logged else []:
        raise UserError(f"no key {unknown[0]!r} was logged{suggest(unknown[0], sorted(logged))}")
    return pd.DataFrame(columns)
