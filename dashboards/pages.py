"""What the dashboard's server answers, apart from how: a method of `Pages` for each address."""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pandas as pd

from tread_lab.analysis.report.page import times_text
from tread_lab.analysis.report.reproduce import Repetition
from tread_lab.dashboards import cell, cell_map, views
from tread_lab.dashboards.cell_map import Tree
from tread_lab.dashboards.live import MEASURING, LiveSweep, Snapshot, progress, stored_plan
from tread_lab.dashboards.metrics import CONTENT, metrics_text
from tread_lab.dashboards.table import ranking_table
from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredPlan
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.errors import UserError
from tread_lab.specs.units import amount, duration

PAGE = Path(__file__).parent / "page"
AT_ONCE = 4  # sweeps that the lab's page reads for the first time
RUNNING = 12  # running runs whose steps are shown


@dataclass(frozen=True)
class Text:
    """A text to send."""

    body: str
    media: str


class Pages:
    """What the server answers, apart from how; each raises UserError for what there is not."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._sizes: dict[str, tuple[int, int]] = {}  # by sweep, of a version
        self._live: dict[str, LiveSweep] = {}
        self._lock = threading.Lock()

    def live(self, name: str) -> LiveSweep:
        """Return a sweep as it stands; it is opened when it is first looked at."""
        with self._lock:
            if name not in self._live:
                self._live[name] = LiveSweep(self.lab, name)
            return self._live[name]

    def sweeps(self) -> list[Tree]:
        """Return a line for each sweep, the newest first."""
        sweeps = map(self.lab.sweep, self.lab.sweeps())
        lines = [dict(_line(s, s.stamp, s.suggested)) for s in sweeps]
        return sorted(lines, key=lambda line: -(line["created"] or 0))

    def lab_page(self) -> list[Tree]:
        """Return each sweep with its answer, states, age and size; a few are read at a time."""
        lines, unread = self.sweeps(), 0
        for line in lines:
            if unread == AT_ONCE:
                line["counts"] = {}
                continue
            line |= self._standing(line["name"])
            unread += line["answer"] is None and not line["problem"]
        return lines

    def _standing(self, name: str) -> Tree:
        try:
            now = self.live(name).snapshot(wait=0)
        except UserError as error:
            return {"answer": None, "counts": {}, "problem": str(error)}
        created = now.plan.created
        return {
            "answer": (said := now.answer()) and vars(said),
            "counts": views.counts(now.plan, now.frame),
            "age": duration(time.time() - created) if created else "",
            "disk": amount(self._bytes(now)) if now.version else "",
            "problem": now.problem,
        }

    def _bytes(self, now: Snapshot) -> int:
        """Return the bytes of a sweep and its runs, counted once for each version."""
        known, size = self._sizes.get(now.plan.name, (0, 0))
        if known != now.version:
            folders = [self.lab.sweep(now.plan.name).path]
            folders += [self.lab.run(run).path for run in now.plan.runs()]
            size = sum(map(_bytes_in, folders))
            self._sizes[now.plan.name] = now.version, size
        return size

    def sweep(self, name: str, metric: str = "", version: str = "", question: str = "") -> Tree:
        """Return all of a sweep, or only what runs now if the page has this version of the rest.

        Args:
            question: `steps` compares at equal steps where the runs of the sweep answer that, too.
        """
        now, folder = self.live(name).snapshot(), self.lab.sweep(name)
        running = self._running(now.plan, now.frame)
        tree = {"version": now.version, "running": running, "problem": now.problem}
        tree["age"] = round(now.age, 1)
        if now.version:
            tree["times"] = times_text(folder, now.plan.created)
            tree["budget"] = views.budget(folder, now.plan, now.frame)
        tree["driven"] = folder.driven
        if version == str(now.version) and now.version:
            return tree
        frame = now.asked(question)
        above = views.overview(now.plan, frame, now.answer(question))
        above |= {"counts": views.counts(now.plan, now.frame), "questions": now.questions}
        chosen = metric if metric in above["metrics"] else above["metric"]
        return {**above, **tree, "cells": cell_map.cells(frame, chosen, now.plan)}

    def table(self, name: str, metric: str = "", question: str = "") -> Tree:
        """Return the ranking as the page shows it, or why there is none."""
        now = self.live(name).snapshot()
        if not now.version:
            return {"problem": "the records are being read"}
        frame = now.asked(question)
        try:
            return ranking_table(frame, metric, frame.attrs.get("comparison", ""))
        except UserError as error:
            return {"problem": str(error)}

    def cell(self, name: str, number: str, seed: str = "", question: str = "") -> Tree:
        """Return the cell of a sweep with this number, through one of its seeds."""
        now = self.live(name).snapshot()
        if (place := _whole(number)) is None:
            raise UserError(f"no cell {number}")
        return cell.cell(self.lab, now.plan, now.asked(question), place, _whole(seed))

    def repeat(self, name: str) -> Tree:
        """Return how to repeat a sweep, as its report says."""
        now = self.live(name)
        repetition = Repetition.of(self.lab, now.folder, now.snapshot().plan)
        return vars(repetition) | {"setups": [(vars(s), n) for s, n in repetition.setups]}

    def grid(self, run: str, evaluation: str) -> Path:
        """Return the picture of the samples of an evaluation."""
        path = self.lab.run(run).path / "evaluations" / evaluation / "grid.png"
        if not path.is_file():
            raise UserError(f"run {run} has no samples {evaluation}")
        return path

    def metrics(self) -> Text:
        """Return what Prometheus scrapes."""
        return Text(metrics_text(self.lab), CONTENT)

    def file(self, name: str = "index.html") -> Path:
        """Return a file of the page."""
        if name not in {path.name for path in PAGE.iterdir()}:
            raise UserError(f"no page /{name}")
        return PAGE / name

    def _running(self, plan: StoredPlan, frame: pd.DataFrame) -> list[Tree]:
        """Return the runs that are at work, and how far they are."""
        rows = frame[frame["state"].isin(["running", MEASURING])].drop_duplicates("run")
        if rows.empty:
            return []
        steps = {trial.run: trial.steps for trial in plan.trials}
        place = cell_map.cell_numbers(frame)
        return [
            {
                "run": row["run"],
                "number": place[row["role"], row["cell"]],
                "seed": int(row["seed"]),
                "measuring": row["state"] == MEASURING,
                **progress(self.lab.run(row["run"]), steps[row["run"]]),
            }
            for row in rows.head(RUNNING).to_dict("records")
        ]


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,19}", text) else None


def _bytes_in(folder: Path) -> int:
    paths = (Path(top, name) for top, _, names in os.walk(folder) for name in names)
    return sum(path.lstat().st_size for path in paths if path.exists())


@lru_cache(maxsize=1000)
def _line(sweep: SweepFolder, *_stamps: float) -> Tree:
    """Return a sweep's line, read once for each plan; of one that cannot be read it says why."""
    try:
        plan = stored_plan(sweep)
    except UserError as error:
        plan = StoredPlan(sweep.name, str(error), "", (), (), {})
    shown = {"question": plan.question, "trials": len(plan.trials), "created": plan.created}
    return {"name": sweep.name, **shown}
