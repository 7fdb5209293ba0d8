"""What MLflow shows of a whole sweep: its state, its question, and how its cells compare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from tread_lab.frames import ranking_caption, ranking_key
from tread_lab.frames.ranking_table import formatted, ranking, to_markdown
from tread_lab.records.checksums import digest
from tread_lab.records.plan import StoredPlan
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.labels import plain_markdown
from tread_lab.specs.units import counted
from tread_lab.tracking.artifacts import File, preview
from tread_lab.tracking.projection import FORMAT, file_mark

SHOWN = 12  # rows of the table in a note
HOLES_SHOWN = 5
LONGEST_NOTE = 7_500  # characters; MLflow takes 8,000
FIGURES_SHOWN = 8
COMPARE = "[Compare the cells]"  # by which a sync tells its own note from a user's
FOLDERS = ("previews", "figures")  # small and full size


@dataclass(frozen=True)
class Ranking:
    """The ranking of a sweep as MLflow shows it: Markdown in its note, all numbers as CSV."""

    markdown: str
    csv: str

    @staticmethod
    def of(frame: pd.DataFrame) -> Ranking | None:
        """Return the ranking of `trials_frame`'s rows, `None` before any cell is measured."""
        key = ranking_key(frame)
        if key is None:
            return None
        numbers = ranking(frame, key)
        caption = ranking_caption(key, frame.attrs.get("comparison", ""))
        lines = [f"{caption}:", "", to_markdown(formatted(numbers.head(SHOWN), key)).rstrip()]
        if len(numbers) > SHOWN:
            lines += ["", f"and {len(numbers) - SHOWN} more in `ranking.csv` among the artifacts"]
        return Ranking("\n".join(lines), numbers.to_csv(index=False, float_format="%.6g"))


@dataclass(frozen=True)
class Parent:
    """The row of a sweep.

    Attributes:
        states: the state of every trial, in the order of the plan.
        driven: whether somebody runs the sweep and will go on doing so.
        ranking: its cells from best to worst, `None` before any is measured.
        ended: when the last of its runs ended, in milliseconds; 0 before that.
        run_id: MLflow's name of this row.
        link: where MLflow's page compares the cells.
    """

    sweep: SweepFolder
    plan: StoredPlan
    states: Sequence[RunState]
    driven: bool
    ranking: Ranking | None
    ended: int
    run_id: str
    link: str

    @property
    def status(self) -> str:
        """MLflow's word; a diverged trial is a result, a failed one is not."""
        if all(state.ended for state in self.states) and not self.plan.to_suggest:
            return "FAILED" if RunState.FAILED in self.states else "FINISHED"
        if self.driven or RunState.RUNNING in self.states:
            return "RUNNING"
        return "SCHEDULED" if set(self.states) <= {RunState.PENDING} else "KILLED"

    @property
    def end(self) -> int | None:
        """When the sweep ended, in milliseconds; `None` while it goes on or has not begun."""
        return None if self.status in ("RUNNING", "SCHEDULED") else self.ended or None

    @property
    def stamp(self) -> str:
        """A fingerprint of all that is shown."""
        facts = [FORMAT, self.status, self.end, self.tags(), self.ranking and self.ranking.csv]
        facts += map(file_mark, [self.sweep.plan_path, *figures(self.sweep)])
        return digest(json.dumps(facts))

    def progress(self) -> str:
        """`17 trials: 15 completed, 2 failed`."""
        counts = ", ".join(f"{count} {state}" for state, count in Counter(self.states).items())
        return f"{counted(len(self.states), 'trial')}: {counts}"

    def tags(self) -> dict[str, str]:
        return {
            "role": "sweep",
            "progress": self.progress(),
            **({"compared": self.plan.comparison} if self.plan.comparison else {}),
            "mlflow.note.content": self.note(),
            "mlflow.source.name": f"tread-lab sweep {self.sweep.name}",
            "mlflow.source.type": "LOCAL",
        }

    def note(self) -> str:
        """Markdown, shown on top of the run's page."""
        parts = [f"**{plain_markdown(self.plan.question or self.sweep.name)}**"]
        parts.append(f"{self.progress()}. {COMPARE}({self.link})")
        parts += [
            f"Not run: {counted(hole.count, 'cell')}, {plain_markdown(hole.reason)}"
            for hole in self.plan.excluded[:HOLES_SHOWN]
        ]
        if self.ranking is not None:
            parts.append(self.ranking.markdown)
        parts.append(READING.format(name=self.sweep.name))
        for path in figures(self.sweep)[:FIGURES_SHOWN]:
            small, large = (self._address(f"{folder}/{path.name}") for folder in FOLDERS)
            parts.append(f"[![{path.stem}]({small})]({large})")
        return "\n\n".join(parts)[:LONGEST_NOTE]

    def files(self) -> dict[str, File]:
        files: dict[str, File] = {"plan.json": self.sweep.plan_path}
        if self.ranking is not None:
            files["ranking.csv"] = self.ranking.csv
        for path in figures(self.sweep):
            previews, full = (f"{folder}/{path.name}" for folder in FOLDERS)
            files[full] = path
            small = preview(path)
            if small is not None:
                files[previews] = small
        return files

    def _address(self, place: str) -> str:
        """Where MLflow's pages find an artifact of this run."""
        return f"get-artifact?path={quote(place, safe='')}&run_uuid={self.run_id}"


def figures(sweep: SweepFolder) -> list[Path]:
    """The pictures made of a sweep."""
    return sorted(sweep.figures.glob("*.png"))


def written(sweep: SweepFolder, plan: StoredPlan) -> int:
    """When the plan was written, in milliseconds."""
    seconds = plan.created or sweep.plan_path.stat().st_mtime
    return round(seconds * 1000)


READING = """\
Negative gaps are better: `gap/heldout` is the paired difference of the held-out loss to the
baseline of the same seed, on the same images and noises, with its 95% interval beside it. To
average over seeds, group the runs by the tag `cell`; `tread-lab status {name}` lists the trials."""
