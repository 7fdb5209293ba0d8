"""What the dashboard's server answers, apart from how: a method of `Pages` for each address."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pandas as pd

from tread_lab.analysis.report.page import times_text
from tread_lab.dashboards import cell, cell_map, views
from tread_lab.dashboards.cell_map import Tree
from tread_lab.dashboards.live import MEASURING, LiveSweep, Snapshot, progress
from tread_lab.dashboards.summary import Summary, state_counts, summary
from tread_lab.dashboards.table import ranking_table
from tread_lab.records.history import left_note
from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredPlan
from tread_lab.records.provenance import mixtures
from tread_lab.records.sweep_folder import hours_text
from tread_lab.specs.errors import UserError

PAGE = Path(__file__).parent / "page"
RUNNING = 12  # running runs whose steps are shown


class Pages:
    """What the server answers, apart from how; each raises UserError for what there is not."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
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
        return [line for line, _ in self._summaries()]

    def lab_page(self) -> list[Tree]:
        """Return each sweep with how many of its runs are in each state."""
        return [line | {"counts": self._counts(line, of)} for line, of in self._summaries()]

    def _summaries(self) -> list[tuple[Tree, Summary]]:
        """Return the line of each sweep; of one that cannot be read it says why."""
        lines: list[tuple[Tree, Summary]] = []
        for name in self.lab.sweeps():
            try:
                of = summary(self.lab.sweep(name))
            except UserError as error:
                of = Summary(str(error), 0, None, (), 0)
            line = {"question": of.question, "trials": of.trials, "created": of.created}
            lines.append(({"name": name, **line}, of))
        return sorted(lines, key=lambda pair: -(pair[1].created or 0))

    def _counts(self, line: Tree, of: Summary) -> dict[str, int]:
        states = state_counts(self.lab, self.lab.sweep(line["name"]), of.runs)
        return views.counts(states.elements(), of.to_suggest)

    def sweep(self, name: str, metric: str = "", version: str = "") -> Tree:
        """Return all of a sweep, or only what runs now if the page has this version of the rest."""
        now, folder = self.live(name).snapshot(), self.lab.sweep(name)
        running = self._running(now.plan, now.frame)
        tree = {"version": now.version, "running": running, "problem": now.problem}
        tree["age"] = round(now.age, 1)
        if now.version:
            tree["times"] = times_text(folder, now.plan.created)
            tree["hours"] = hours_text(folder, now.plan.hours)
        if version == str(now.version) and now.version:
            return tree
        above = views.overview(now.plan, now.frame, now.answer)
        states, awaited = now.frame.drop_duplicates("run")["state"], views.to_suggest(now.plan)
        above["counts"] = views.counts(states, awaited)
        chosen = metric if metric in above["metrics"] else above["metric"]
        tree["cells"] = cell_map.cells(now.frame, chosen, now.plan)
        tree["table"] = table(self.lab, now, metric)
        return {**above, **tree}

    def cell(self, name: str, number: str, seed: str = "") -> Tree:
        """Return the cell of a sweep with this number, through one of its seeds."""
        now = self.live(name).snapshot()
        if (place := _whole(number)) is None:
            raise UserError(f"no cell {number}")
        return cell.cell(self.lab, now.plan, now.frame, place, _whole(seed))

    def grid(self, run: str, evaluation: str) -> Path:
        """Return the picture of the samples of an evaluation."""
        path = self.lab.run(run).path / "evaluations" / evaluation / "grid.png"
        if not path.is_file():
            raise UserError(f"run {run} has no samples {evaluation}")
        return path

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


def table(lab: Lab, now: Snapshot, metric: str) -> Tree:
    """Return the ranking as the page shows it with what its runs mix, or why there is none."""
    if not now.version:
        return {"problem": "the records are being read"}
    try:
        ranked = ranking_table(now.frame, metric, now.plan.comparison)
        notes = left_note(now.frame.attrs.get("left", []))
        notes += mixtures(lab, now.frame["run"].unique())
        ranked["caption"] = "; ".join([ranked["caption"], *notes])
        return ranked
    except UserError as error:
        return {"problem": str(error)}


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,19}", text) else None
