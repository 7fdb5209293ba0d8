"""A sweep's own run ranks its cells as the terminal does: mean and interval over seeds."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from tests.frames.test_ranking import table
from tests.synthetic import small, write_sweep
from tread_lab.frames import cells_frame, metric_columns, trials_frame
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs.expansion import ExcludedCells
from tread_lab.tracking.sweep_run import LONGEST_NOTE, Parent, Ranking, figures, written


def ranking(lab: Lab) -> Ranking:
    found = Ranking.of(trials_frame(lab, "placement"))
    assert found is not None
    return found


def test_cells_stand_in_the_order_of_their_gap_beside_its_interval(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(seeds=(0, 1, 2)))
    rows = ranking(lab).rows
    assert list(rows["gap/heldout"]) == sorted(rows["gap/heldout"])
    best = rows[rows["cell"] != "dense"].iloc[0]
    cells = cells_frame(trials_frame(lab, "placement")).set_index("cell").loc[best["cell"]]
    assert tuple(best[["gap/heldout", "low", "high"]]) == pytest.approx(
        tuple(cells[["gap/heldout", "gap/heldout:low", "gap/heldout:high"]])
    )
    assert (best["interval over"], best["seeds"]) == ("3 seeds", 3)


def test_before_anything_is_measured_there_is_no_ranking(tmp_path: Path) -> None:
    frame = trials_frame(write_sweep(tmp_path, small()), "placement")
    assert Ranking.of(frame.drop(columns=metric_columns(frame))) is None


def test_completed_cells_with_a_number_are_ranked_and_no_others() -> None:
    names = ("dense", "unmeasured", "better", "broken")
    states = ["completed", "completed", "completed", "failed"]
    found = Ranking.of(table(*names, state=states, **{"is@1k": [2.0, None, 3.0, 9.0]}))
    assert found is not None and found.key == "is@1k"
    heads = ["rank", "cell", "is@1k", "low", "high", "interval over", "seeds"]
    assert list(found.rows.columns) == heads
    assert found.rows["cell"].tolist() == ["better", "dense"]
    assert found.rows["seeds"].tolist() == [1, 1]


def test_a_cell_counts_the_seeds_that_have_a_number() -> None:
    cells = ["dense", "a", "a", "a", "b", "b", "b"]
    frame = table(*cells, run=[*range(7)], **{"is@1k": [9.0, 5.0, 5.5, None, 3.0, None, None]})
    found = Ranking.of(frame)
    assert found is not None and found.rows["cell"].tolist() == ["dense", "a", "b"]
    assert found.rows["seeds"].tolist() == [1, 2, 1]
    roles, ends = ["baseline"] * 2 + ["trial"] * 2, {"low": 0.4, "high": 0.6, "n": 64.0}
    gaps = {f"gap/heldout:{end}": [None, None, x, None] for end, x in ends.items()}
    frame = table(
        *["dense"] * 2, *["a"] * 2, run=[*range(4)], role=roles,
        **{"gap/heldout": [None, None, 0.5, None], **gaps},
    )  # fmt: skip
    found = Ranking.of(frame)
    assert found is not None and found.rows["cell"].tolist() == ["dense", "a"]
    assert found.rows["seeds"].tolist() == [2, 1]  # whose own gaps are 0; one over images


def rows(key: str, count: int) -> Ranking:
    """Cells of which the first alone has an interval."""
    blank = [None] * (count - 1)
    columns = {"rank": range(1, count + 1), "cell": [f"c{k}" for k in range(count)],
               key: [-0.00123456 * (count - k) for k in range(count)], "low": [-0.005, *blank],
               "high": [0.0025, *blank], "interval over": ["3 seeds", *[""] * (count - 1)],
               "seeds": 3}  # fmt: skip
    return Ranking(key, pd.DataFrame(columns), [f"text {k}" for k in range(count)])


def test_a_row_says_what_its_interval_is_over() -> None:
    found = rows("gap/heldout", 2)
    assert found.markdown().splitlines()[2:] == [
        "| rank | cell | gap/heldout | 95% interval over | seeds |",
        "|---|---|---|---|---|",
        "| 1 | `c0` | text 0 | 3 seeds | 3 |",
        "| 2 | `c1` | text 1 |  | 3 |",
    ]
    assert found.csv().splitlines()[1:] == [
        "1,c0,-0.00246912,-0.005,0.0025,3 seeds,3", "2,c1,-0.00123456,,,,3"
    ]  # fmt: skip
    assert len(rows("gap/heldout", 12).markdown().splitlines()) == 4 + 12
    long = rows("gap/heldout", 13)
    assert "| 12 | `" in long.markdown() and "| 13 | `" not in long.markdown()
    assert len(long.csv().splitlines()) == 14
    last = "and 1 more in `ranking.csv` among the artifacts"
    assert long.markdown().endswith(last)


def parent(root: Path, *states: str, **changes: Any) -> Parent:
    lab = write_sweep(root, small())
    sweep = lab.sweep("placement")
    found = [RunState(state) for state in states or ("completed", "failed", "completed")]
    fields = {"driven": False, "ranking": None, "ended": 0, "run_id": "r1", "link": "#x"}
    return Parent(**{"sweep": sweep, "plan": sweep.plan(), "states": found, **fields, **changes})


STATUSES = [
    ("completed diverged stopped", False, "FINISHED"),
    ("completed failed", True, "FAILED"),
    ("pending pending", False, "SCHEDULED"),
    ("pending pending", True, "RUNNING"),
    ("pending running", False, "RUNNING"),
    ("pending completed", False, "KILLED"),
    ("interrupted failed", False, "KILLED"),
]


def test_a_sweep_is_in_mlflow_as_its_trials_are(tmp_path: Path) -> None:
    sweep = parent(tmp_path)
    for words, driven, status in STATUSES:
        states = [RunState(word) for word in words.split()]
        assert replace(sweep, states=states, driven=driven).status == status, words
    searching = replace(sweep, plan=replace(sweep.plan, search={}), states=[RunState.COMPLETED])
    assert [replace(searching, driven=own).status for own in (True, False)] == ["RUNNING", "KILLED"]


READING = "Negative gaps are better: `gap/heldout` is the paired difference"


def test_a_note_has_question_progress_holes_ranking_and_figures(tmp_path: Path) -> None:
    found = parent(tmp_path, ranking=rows("gap/heldout", 1))
    holes = tuple(ExcludedCells(f"reason {k}", k, ()) for k in range(1, 7))
    found = replace(found, plan=replace(found.plan, excluded=holes))
    found.sweep.figures.mkdir()
    for k in (*range(9, 0, -1), "a b"):
        Image.new("RGB", (2, 2)).save(found.sweep.figures / f"{k}.png")
    place = "get-artifact?path={}%2F{}.png&run_uuid=r1"
    *parts, reading = found.note().partition(READING)[0:2]
    assert parts[0].split("\n\n")[:-2] == [
        "**Where should a route start and end?**",
        "3 trials: 2 completed, 1 failed. [Compare the cells](#x)",
        "Not run: 1 cell, reason 1",
        *(f"Not run: {k} cells, reason {k}" for k in range(2, 6)),
        "ranked by gap/heldout, lower is better; a row is a cell, its seeds averaged:",
    ]
    assert reading == READING
    drawn = found.note().split("\n\n")[-8:]
    assert drawn == [
        f"[![{k}]({place.format('previews', k)})]({place.format('figures', k)})"
        for k in range(1, 9)
    ]
    assert [path.stem for path in figures(found.sweep)] == [*"123456789", "a b"]
    assert found._address("figures/a b.png") == (
        "get-artifact?path=figures%2Fa%20b.png&run_uuid=r1"
    )
    nameless = replace(found, plan=replace(found.plan, question=""))
    assert nameless.note().startswith("**placement**\n\n")


def test_a_note_is_never_longer_than_mlflow_takes(tmp_path: Path) -> None:
    found = parent(tmp_path)
    long = replace(found, plan=replace(found.plan, question=9000 * "x"))
    assert len(long.note()) == LONGEST_NOTE == 7500


def test_the_files_of_a_sweep_are_its_plan_ranking_and_figures(tmp_path: Path) -> None:
    found = parent(tmp_path)
    assert found.files() == {"plan.json": found.sweep.plan_path}
    found = replace(found, ranking=rows("gap/heldout", 1))
    found.sweep.figures.mkdir()
    whole, torn = (found.sweep.figures / name for name in ("a.png", "b.png"))
    Image.new("RGB", (600, 300)).save(whole)
    torn.write_bytes(b"no picture")
    files = found.files()
    assert list(files) == [
        "plan.json", "ranking.csv", "figures/a.png", "previews/a.png", "figures/b.png"
    ]  # fmt: skip
    assert (files["figures/a.png"], files["figures/b.png"]) == (whole, torn)
    assert str(files["ranking.csv"]).splitlines()[1] == "1,c0,-0.00123456,-0.005,0.0025,3 seeds,3"
    small_one = files["previews/a.png"]
    assert isinstance(small_one, bytes)
    assert Image.open(io.BytesIO(small_one)).size == (520, 260)


def test_a_sweep_is_shown_anew_when_anything_that_is_shown_has_changed(tmp_path: Path) -> None:
    found = parent(tmp_path)
    stamps = [found.stamp, replace(found, link="#y").stamp]
    stamps.append(replace(found, states=[RunState.FAILED]).stamp)
    os.utime(found.sweep.plan_path, (1, 1))
    stamps.append(found.stamp)
    found.sweep.figures.mkdir()
    (found.sweep.figures / "a.png").write_bytes(b"1")
    stamps.append(found.stamp)
    (found.sweep.figures / "a.png").write_bytes(b"22")
    stamps.append(found.stamp)
    assert found.stamp == stamps[-1]
    long = rows("gap/heldout", 14)
    last = replace(long, rows=long.rows.assign(seeds=[3] * 13 + [2]))  # of which the note is silent
    stamps += [replace(found, ranking=ranking).stamp for ranking in (long, last)]
    assert len(set(stamps)) == 8 and len(stamps[0]) == 16


def test_a_plan_was_written_when_it_says_else_when_its_file_was(tmp_path: Path) -> None:
    found = parent(tmp_path)
    assert written(found.sweep, replace(found.plan, created=1234.5678)) == 1234568
    os.utime(found.sweep.plan_path, (50, 50.25))
    assert written(found.sweep, replace(found.plan, created=None)) == 50250
