"""Sweeps as they stand: read in the background, again and again."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace

import pandas as pd

from tread_lab.analysis.report.answer import Answer, answer
from tread_lab.frames import plan_frame
from tread_lab.records.lab import Lab
from tread_lab.records.log import Entry, read_entries
from tread_lab.records.metric_names import TRAIN_LOSS
from tread_lab.records.plan import StoredPlan
from tread_lab.records.run_folder import LOCK, RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs.errors import UserError
from tread_lab.specs.labels import cell_label

FIRST_WAIT = 0.8  # seconds
PAUSE = 1.0  # seconds between two readings at least
SHARE = 4.0  # a reading that took t seconds is not repeated within SHARE * t
MEASURING = "measuring"  # a state of the dashboard alone
TAIL = 6000  # bytes at the end of a log in which the last entries stand


@dataclass(frozen=True)
class Snapshot:
    """A sweep at one time.

    Attributes:
        plan: the stored plan, its baselines with the axis values that tell them apart.
        frame: rows of `trials_frame`; before the first reading is done, the plan's rows with the
            state `unread` and no numbers. A run that is trained and at which a process works has
            the state `measuring`.
        version: counts the changes of the frame; 0 before the first reading.
        answer: what the report says of the sweep; `None` before the first reading.
        problem: why the last two readings failed, empty otherwise; the rest is of an earlier one.
        age: seconds since the records were read for it last.
    """

    plan: StoredPlan
    frame: pd.DataFrame
    version: int
    answer: Answer | None = None
    problem: str = ""
    age: float = 0.0


class LiveSweep:
    """One sweep, read in a thread of its own when somebody looks."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab, self.folder = lab, lab.known_sweep(name)
        self._lock = threading.Lock()
        self._reading = False  # one thread at a time, which alone writes what stands below
        self._ready = threading.Event()  # after the first reading
        self._next = 0.0
        self._failed = 0  # readings in a row
        self._read_at = time.monotonic()
        self._stamps = self._plan_stamps()
        self._now = unread(self.folder.plan().with_baseline_cells)

    def snapshot(self, *, wait: float = FIRST_WAIT) -> Snapshot:
        """Return the sweep as it was read last; a new reading is started if the last one is old.

        Args:
            wait: seconds that the first answer waits for the records before it goes without them.
        """
        with self._lock:
            start = not self._reading and time.monotonic() >= self._next
            self._reading |= start
        if start:
            threading.Thread(target=self._read, daemon=True).start()
        self._ready.wait(wait)
        return replace(self._now, age=time.monotonic() - self._read_at)

    def _read(self) -> None:
        """Read plan and records together: every row of the frame is a trial of that plan."""
        started, last = time.monotonic(), self._now
        try:
            self._now = self._as_it_stands(last)
            self._failed, self._read_at = 0, started
        except Exception as error:
            # One failure is a record that is being written: the next reading sees it whole.
            self._failed += 1
            if self._failed > 1:
                self._now = replace(last, problem=_one_line(error))
        finally:
            now = time.monotonic()
            self._next = now + max(PAUSE, SHARE * (now - started))
            self._ready.set()
            self._reading = False

    def _as_it_stands(self, last: Snapshot) -> Snapshot:
        """Return what the records say now, the last snapshot if that is the same."""
        stamps, plan = self._plan_stamps(), last.plan
        if stamps != self._stamps:
            plan = self.folder.plan().with_baseline_cells
        records = plan_frame(self.lab, plan)
        self._stamps = stamps
        frame = self._with_measuring(records)
        if last.version and plan is last.plan and frame.equals(last.frame):
            return replace(last, problem="")
        ended = all(RunState(state).ended for state in records["state"].unique())
        told = answer(self.lab, records, plan, complete=ended)
        return Snapshot(plan, frame, last.version + 1, told)

    def _with_measuring(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the frame with the state `measuring` for trained runs that a process works at."""
        trained = frame["state"] == "completed"
        busy = [*filter(self._is_busy, frame.loc[trained, "run"].unique())]
        if not busy:
            return frame
        return frame.assign(state=frame["state"].mask(trained & frame["run"].isin(busy), MEASURING))

    def _is_busy(self, run: str) -> bool:
        """Return whether a process works at a run; a lock that was given back is empty."""
        try:
            signed = os.stat(f"{self.lab.root}/runs/{run}/{LOCK}").st_size  # noqa: PTH116
        except OSError:
            return False
        return signed > 0 and self.lab.run(run).locked

    def _plan_stamps(self) -> tuple[int, float]:
        return self.folder.stamp, self.folder.suggested


def unread(plan: StoredPlan) -> Snapshot:
    """Return a sweep of which nothing but the plan is read."""
    rows = [
        {
            "run": trial.run,
            "role": trial.role,
            "seed": trial.seed,
            "baseline": trial.baseline,
            "state": "unread",
            "reason": "",
            "cell": cell_label(trial),
            **{a: str(v) if isinstance(v, dict | list) else v for a, v in trial.cell.items()},
            "steps_done": None,
        }
        for trial in plan.trials
    ]
    frame = pd.DataFrame(rows)
    frame.attrs["axes"] = list(plan.axes)
    return Snapshot(plan, frame, 0)


def _one_line(error: Exception) -> str:
    """Return `KeyError: 'x'`; a user's mistake speaks for itself."""
    text = " ".join(str(error).split())
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"


def progress(run: RunFolder, steps: int) -> dict[str, float | None]:
    """Return `{step, steps, loss}` of a running run, read from the end of its log."""
    entries: list[Entry] = []
    with suppress(OSError):  # it has no log yet, or one that cannot be read
        size = run.log_path.stat().st_size
        entries = list(read_entries(run.log_path, max(0, size - TAIL)))
    losses = [entry.value for entry in entries if entry.key == TRAIN_LOSS]
    newest = max(entries, key=lambda entry: entry.n, default=None)
    return {
        "step": newest.step if newest else 0,
        "steps": steps,
        "loss": losses[-1] if losses else None,
    }
