"""When a sweep began, when it ended or how much is left, and how long it was worked at."""

from __future__ import annotations

from datetime import datetime

from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredPlan
from tread_lab.records.run_status import moved
from tread_lab.records.sweep_folder import SweepFolder, last_worked, seconds_spent
from tread_lab.specs.units import duration


def newest_record(lab: Lab, folder: SweepFolder, plan: StoredPlan) -> float | None:
    """Return when a run last made progress where the sweep's own record says nothing of its end."""
    if last_worked(folder.spent_path) is not None:
        return None
    runs = map(lab.run, plan.runs())
    times = (moved(run, run.attempts.read()) for run in runs)
    return max((time for time in times if time is not None), default=None)


def times_text(
    folder: SweepFolder, created: float | None, *, done: bool, newest: float | None = None
) -> str:
    """Return `Began 25 November 2026, 04:59 UTC; ended 05:13 UTC; took 13 min.`

    Args:
        created: when the plan was written; `None` in labs of early versions.
        done: whether all runs have ended; a driver may have more to do.
        newest: `newest_record`.
    """
    worked, seconds = last_worked(folder.spent_path), seconds_spent(folder.spent_path)
    began = f"began {_clock(created)}" if created else "when it began is not recorded"
    took = duration(seconds)
    if done and not folder.driven:
        parts = [_ended(worked, newest, created), f"took {took}" if seconds else ""]
    else:
        parts = [_left(folder, worked, created), f"has taken {took} so far" if seconds else ""]
    text = "; ".join(filter(None, [began, *parts]))
    return f"{text[0].upper()}{text[1:]}."


def _ended(worked: float | None, newest: float | None, created: float | None) -> str:
    if worked is not None:
        return f"ended {_clock(worked, created)}"
    if newest is not None:
        return f"ended about {_clock(newest, created)}, by the newest record of its runs"
    return "when it ended is not recorded"


def _left(folder: SweepFolder, worked: float | None, created: float | None) -> str:
    if left := folder.time_left():
        return "how long it will take is not known yet" if left == "..." else f"about {left} left"
    if folder.driven:
        return "a driver works at it"
    last = "" if worked is None else f", last {_clock(worked, created)}"
    return f"not finished, and nobody works at it now{last}"


def _clock(seconds: float, after: float | None = None) -> str:
    """Return `25 November 2026, 04:59 UTC`; the time alone where it is of the same day."""
    time = datetime.fromtimestamp(seconds).astimezone()
    same = after is not None and datetime.fromtimestamp(after).date() == time.date()
    return f"{time:%H:%M %Z}" if same else f"{time.day} {time:%B %Y, %H:%M %Z}"
