"""A finished sweep, opened by the first cell of every notebook: its lab, rows and logged losses."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from tread_lab.frames import history_frame, trials_frame
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import TRAIN_LOSS
from tread_lab.specs.errors import UserError


class NoSweep(UserError):
    """The lab has no such sweep; one line in a notebook, not a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


@dataclass(frozen=True)
class OpenSweep:
    """One sweep of one lab; `frame` has the rows of `trials_frame`."""

    lab: Lab
    name: str
    frame: pd.DataFrame

    @cached_property
    def history(self) -> pd.DataFrame:
        """The logged training losses of every run."""
        return history_frame(self.lab, self.name, keys=[TRAIN_LOSS])

    def metric(self, start: str) -> str:
        """The sweep's first metric that begins so: `fd` for `fd[fashion16-v1]@1k`.

        Raises:
            UserError: nothing of the kind was measured.
        """
        found = (c for c in self.frame.columns if str(c).startswith(start) and "@" in c)
        name = next((str(c).split(" ")[0] for c in found if ":" not in str(c)), None)
        if name is None:
            raise NoSweep(
                f"{self.name} measured no {start}; `tread-lab evaluate {self.name} fd@1k`"
            )
        return name

    def __repr__(self) -> str:
        runs = self.frame.drop_duplicates("run")
        states = runs["state"].value_counts()
        told = ", ".join(f"{count} {state}" for state, count in states.items())
        seeds = self.frame["seed"].nunique()
        return (
            f"{self.name}: {len(runs)} runs of {', '.join(runs['model'].unique())} ({told}),"
            f" {seeds} seed{'s' * (seeds > 1)}"
        )


def open_sweep(name: str = "route_placement", *, root: str | Path | None = None) -> OpenSweep:
    """The sweep `name`, or the one that TREAD_LAB_SWEEP names, with everything recorded so far.

    The lab is `root`, else TREAD_LAB_ROOT, else the nearest `lab` here or in a folder above.

    Raises:
        NoSweep: it was never planned there; says what to run.
    """
    name = os.environ.get("TREAD_LAB_SWEEP") or name
    lab = Lab.at(root or os.environ.get("TREAD_LAB_ROOT") or _nearest())
    if name not in lab.sweeps():
        raise NoSweep(
            f"no sweep {name} in this lab yet: run `tread-lab sweep {name}.yaml`, or set"
            " TREAD_LAB_ROOT to another lab and TREAD_LAB_SWEEP to another sweep"
        )
    frame = trials_frame(lab, name)
    if not (frame["state"] == "completed").any():
        raise NoSweep(f"no run of {name} is done yet: `tread-lab sweep {name}.yaml` runs them")
    return OpenSweep(lab, name, frame)


def _nearest() -> Path | None:
    here = Path.cwd()
    return next((f / "lab" for f in (here, *here.parents) if (f / "lab" / "sweeps").is_dir()), None)
