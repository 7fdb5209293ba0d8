"""Sweeps as they stand: read in the background, again and again, only what has changed."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

import pandas as pd

from tread_lab.analysis.report.answer import Answer, answer
from tread_lab.frames import Memory, plan_frame
from tread_lab.records.lab import Lab
from tread_lab.records.log import Entry, read_entries
from tread_lab.records.metric_names import TRAIN_LOSS
from tread_lab.records.plan import StoredPlan
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.errors import UserError
from tread_lab.specs.labels import cell_label

FIRST_WAIT = 0.8  # seconds
PAUSE = 1.0  # seconds between two readings at least
SHARE = 4.0  # a reading that took t seconds is not repeated within SHARE * t
MEASURING = "measuring"  # a state of the dashboard alone
MANY = 2000  # trials whose plan and records the garbage collector had better pass over
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


def stored_plan(sweep: SweepFolder) -> StoredPlan:
    """Return the plan of a sweep; the last four are kept, so list and page read each once."""
    return _plan(sweep, sweep.stamp, sweep.suggested)


@lru_cache(maxsize=4)
def _plan(sweep: SweepFolder, *_stamps: float) -> StoredPlan:
    return sweep.plan()


class LiveSweep:
    """One sweep, read in a thread of its own when somebody looks."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab, self.folder = lab, lab.known_sweep(name)
        self._memory = Memory()
        self._measured: dict[
            tuple[str, ...], set[str]
        ] = {}  # runs, by the evaluations that they have
        self._trained: set[str] = set()  # completed runs of `_records` without
        self._records: pd.DataFrame | None = None  # read last
        self._lock = threading.Lock()
        self._reading = False
        self._failed = 0  # readings in a row
        self._versions = itertools.count(1)  # goes on when the plan is extended
        self._ready = threading.Event()
        self._next = 0.0
        self._stamp = 0
        self._suggested = 0.0  # when a search last added to its plan
        self._read_at = time.monotonic()
        self._now = self._unread()

    def snapshot(self, *, wait: float = FIRST_WAIT) -> Snapshot:
        """Return the sweep as it was read last; a new reading is started if the last one is old.

        Args:
            wait: seconds that the first answer waits for the records before it goes without them;
                those of many trials take longer anyway.
        """
        with self._lock:
            if self._plan_stamp() != self._stamp:
                self._now, self._memory, self._next = self._unread(), Memory(), 0.0
            start = not self._reading and time.monotonic() >= self._next
            self._reading |= start
        if start:
            threading.Thread(target=self._read, daemon=True).start()
        if self._now.version == 0 and len(self._now.frame) <= MANY:
            self._ready.wait(wait)
        return replace(self._now, age=time.monotonic() - self._read_at)

    def _read(self) -> None:
        """Read plan and records together: every row of the frame is a trial of that plan."""
        started, last = time.monotonic(), self._now
        try:
            plan = self._grown(last.plan)
            records = plan_frame(self.lab, plan, memory=self._memory)
            frame = self._with_measuring(records, plan)
            if last.version == 0 or not (frame is last.frame or frame.equals(last.frame)):
                self._replace(last, self._snapshot(plan, frame, records))
                if last.version == 0 and len(frame) > MANY:
                    gc.collect()
                    gc.freeze()
            elif last.problem:
                self._replace(last, replace(last, problem=""))
            self._failed, self._read_at = 0, started
        except Exception as error:
            # One failure is a record that is being written: the next reading sees it whole.
            self._failed += 1
            if self._failed > 1:
                self._replace(last, replace(last, problem=_one_line(error)))
        finally:
            took = time.monotonic() - started
            with self._lock:
                self._reading = False
                if self._now.version or self._now.plan is last.plan:  # else a new plan waits
                    self._next = time.monotonic() + max(PAUSE, SHARE * took)
                    self._ready.set()

    def _replace(self, last: Snapshot, now: Snapshot) -> None:
        """Show what was read, unless the plan was extended since the reading began."""
        with self._lock:
            if self._now is last:
                self._now = now

    def _grown(self, plan: StoredPlan) -> StoredPlan:
        """Return a plan that has not been written anew; that of a search grows beside its file."""
        stamp = self.folder.suggested if plan.search is not None else self._suggested
        if stamp == self._suggested:
            return plan
        self._suggested = stamp
        return stored_plan(self.folder).with_baseline_cells

    def _snapshot(self, plan: StoredPlan, frame: pd.DataFrame, records: pd.DataFrame) -> Snapshot:
        ended = all(RunState(state).ended for state in records["state"].unique())
        told = answer(self.lab, records, plan, complete=ended)
        return Snapshot(plan, frame, next(self._versions), told)

    def _with_measuring(self, frame: pd.DataFrame, plan: StoredPlan) -> pd.DataFrame:
        """Return the frame with the state `measuring` for trained runs that a process works at."""
        planned, busy = plan.planned, []
        measured = self._measured.setdefault(tuple(planned), set())
        if frame is not self._records:
            completed = frame.loc[frame["state"] == "completed", "run"]
            self._records, self._trained = frame, {*map(str, completed)} - measured
        for name in sorted(self._trained):
            path = self.lab.run(name).path
            if all((path / "evaluations" / e / "metrics.json").exists() for e in planned):
                measured.add(name)
            elif self.lab.run(name).locked:
                busy.append(name)
        self._trained -= measured
        if not busy:
            return frame
        return frame.assign(state=frame["state"].mask(frame["run"].isin(busy), MEASURING))

    def _plan_stamp(self) -> int:
        return self.folder.stamp or self._stamp

    def _unread(self) -> Snapshot:
        self._stamp, self._suggested = self._plan_stamp(), self.folder.suggested
        self._ready.clear()
        plan = stored_plan(self.folder).with_baseline_cells
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
