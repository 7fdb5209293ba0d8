"""What MLflow shows of a whole sweep: its state, its question, and how its cells compare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from tread_lab.frames import (
    COUNT,
    HIGH,
    LOW,
    UNIT,
    intervals_over,
    ranked_cells,
    ranking_caption,
    ranking_key,
    result_texts,
)
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
FOLDERS = ("previews", "figures")  # small and full size


@dataclass(frozen=True)
class Ranking:
    """The measured cells of a sweep, best first, as tables and the terminal rank them.

    Attributes:
        key: the metric that decides.
        rows: columns `rank`, `cell`, `key`, `low`, `high`, `interval over`, `seeds` with a number.
        texts: `key` with its interval, of each row.
        comparison: the question that differences to baselines answer.
    """

    key: str
    rows: pd.DataFrame
    texts: Sequence[str]
    comparison: str = ""

    @staticmethod
    def of(frame: pd.DataFrame) -> Ranking | None:
        """Return the ranking of `trials_frame`'s rows, `None` before any cell is measured."""
        key = ranking_key(frame)
        if key is None:
            return None
        cells = ranked_cells(frame, key)
        cells = cells[cells[key].notna() & (cells["state"] == RunState.COMPLETED)]
        counted = cells[key + COUNT].where(cells[key + UNIT] == "seeds", 1)
        rows = {
            "rank": cells["rank"],
            "cell": cells["cell"],
            key: cells[key],
            **{"low": cells[key + LOW], "high": cells[key + HIGH]},
            "interval over": intervals_over(cells, key),
            "seeds": counted.where(cells[key + COUNT] > 0, cells["completed"]),  # dense has no gap
        }
        texts = result_texts(cells, key)
        return Ranking(key, pd.DataFrame(rows), texts, frame.attrs.get("comparison", ""))

    def markdown(self) -> str:
        """Return the best cells as a table."""
        lines = [f"{ranking_caption(self.key, self.comparison)}:", ""]
        lines += [
            f"| rank | cell | {self.key} | 95% interval over | seeds |",
            "|---|---|---|---|---|",
        ]
        rows = self.rows[["rank", "cell", "interval over", "seeds"]].head(SHOWN)
        for text, (rank, label, over, seeds) in zip(self.texts, rows.itertuples(index=False)):
            cell = str(label).replace("`", "'").replace("|", "\\|")  # in code nothing else counts
            place = "" if pd.isna(rank) else rank
            lines.append(f"| {place} | `{cell}` | {text} | {over} | {seeds} |")
        if len(self.rows) > SHOWN:
            lines += ["", f"and {len(self.rows) - SHOWN} more in `ranking.csv` among the artifacts"]
        return "\n".join(lines)

    def csv(self) -> str:
        """Return all cells."""
        return str(self.rows.to_csv(index=False, float_format="%.6g"))


@dataclass(frozen=True)
class Parent:
    """The row of a sweep.

    Attributes:
        states: the state of every trial, in the order of the plan.
        driven: whether somebody runs the sweep and will go on doing so.
        ranking: its measured cells from best to worst, `None` before any is.
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
    def stamp(self) -> str:
        """A fingerprint of all that is shown."""
        facts = [FORMAT, self.status, self.tags(), self.ranking and self.ranking.csv()]
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
        parts.append(f"{self.progress()}. [Compare the cells]({self.link})")
        parts += [
            f"Not run: {counted(hole.count, 'cell')}, {plain_markdown(hole.reason)}"
            for hole in self.plan.excluded[:HOLES_SHOWN]
        ]
        if self.ranking is not None:
            parts.append(self.ranking.markdown())
        parts.append(READING.format(name=self.sweep.name))
        for path in figures(self.sweep)[:FIGURES_SHOWN]:
            small, large = (self._address(f"{folder}/{path.name}") for folder in FOLDERS)
            parts.append(f"[![{path.stem}]({small})]({large})")
        return "\n\n".join(parts)[:LONGEST_NOTE]

    def files(self) -> dict[str, File]:
        files: dict[str, File] = {"plan.json": self.sweep.plan_path}
        if self.ranking is not None:
            files["ranking.csv"] = self.ranking.csv()
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
