"""A sweep's own run has the ranking that terminal, tables and dashboard have."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from tests.four_sweeps import made_frame
from tests.synthetic import small, write_sweep
from tread_lab.frames import metric_columns, trials_frame
from tread_lab.frames.ranking_table import formatted, ranking, to_markdown
from tread_lab.records.status import RunState
from tread_lab.specs.cell import ExcludedCells
from tread_lab.tracking.sweep_run import LONGEST_NOTE, Parent, Ranking, figures, written


def test_a_note_has_the_first_rows_of_the_ranking_and_the_file_all_numbers(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(seeds=(0, 1, 2)))
    frame = trials_frame(lab, "placement")
    numbers, found = ranking(frame), Ranking.of(frame)
    assert found is not None
    caption, table = found.markdown.split("\n\n")
    assert caption.startswith("ranked by gap/heldout, lower is better, at equal steps; a row")
    assert f"{table}\n" == to_markdown(formatted(numbers, "gap/heldout"))
    read = pd.read_csv(io.StringIO(found.csv))
    assert list(read["cell"]) == list(numbers["cell"])
    assert list(read["gap/heldout"]) == pytest.approx(list(numbers["gap/heldout"]), rel=1e-5)
    ends = [f"gap/heldout{end}" for end in ("", ":low", ":high", ":n", ":unit")]  # once
    assert list(read) == ["rank", "cell", *ends, "flops", "hours", "disturbed", "state", "reason"]
    assert Ranking.of(frame.drop(columns=metric_columns(frame))) is None


def test_a_note_shows_twelve_rows_and_names_the_file_with_the_rest() -> None:
    for count, last in ((12, "| 12 | c11 | 11.0 | completed |"), (13, LAST)):
        cells = ["dense", *(f"c{k}" for k in range(1, count))]
        found = Ranking.of(made_frame(*cells, **{"fd@1k": [float(k) for k in range(count)]}))
        assert found is not None and found.markdown.splitlines()[-1] == last
        assert found.markdown.count("\n| ") == 13 and len(found.csv.splitlines()) == count + 1


LAST = "and 1 more in `ranking.csv` among the artifacts"
TABLE = Ranking("ranked by gap/heldout:\n\n| rank |", "rank\n1\n")


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
    found = parent(tmp_path, ranking=TABLE)
    holes = tuple(ExcludedCells(f"reason {k}", k, ()) for k in range(1, 7))
    found = replace(found, plan=replace(found.plan, excluded=holes))
    found.sweep.figures.mkdir()
    for k in (*range(9, 0, -1), "a b"):
        Image.new("RGB", (2, 2)).save(found.sweep.figures / f"{k}.png")
    place = "get-artifact?path={}%2F{}.png&run_uuid=r1"
    *parts, reading = found.note().partition(READING)[0:2]
    assert parts[0].split("\n\n")[:-1] == [
        "**Where should a route start and end?**",
        "3 trials: 2 completed, 1 failed. [Compare the cells](#x)",
        "Not run: 1 cell, reason 1",
        *(f"Not run: {k} cells, reason {k}" for k in range(2, 6)),
        *TABLE.markdown.split("\n\n"),
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
    found = replace(found, ranking=TABLE)
    found.sweep.figures.mkdir()
    whole, torn = (found.sweep.figures / name for name in ("a.png", "b.png"))
    Image.new("RGB", (600, 300)).save(whole)
    torn.write_bytes(b"no picture")
    files = found.files()
    assert list(files) == [
        "plan.json", "ranking.csv", "figures/a.png", "previews/a.png", "figures/b.png"
    ]  # fmt: skip
    assert (files["figures/a.png"], files["figures/b.png"]) == (whole, torn)
    assert files["ranking.csv"] == TABLE.csv
    small_one = files["previews/a.png"]
    assert isinstance(small_one, bytes)
    assert Image.open(io.BytesIO(small_one)).size == (520, 260)


def test_a_sweep_is_shown_anew_when_anything_that_is_shown_has_changed(tmp_path: Path) -> None:
    found = parent(tmp_path)
    stamps = [found.stamp, replace(found, link="#y").stamp]
    stamps.append(replace(found, states=[RunState.FAILED]).stamp)
    stamps.append(replace(found, ended=7).stamp)  # a run has ended again
    os.utime(found.sweep.plan_path, (1, 1))
    stamps.append(found.stamp)
    found.sweep.figures.mkdir()
    (found.sweep.figures / "a.png").write_bytes(b"1")
    stamps.append(found.stamp)
    (found.sweep.figures / "a.png").write_bytes(b"22")
    stamps.append(found.stamp)
    assert found.stamp == stamps[-1]
    other = replace(TABLE, csv="rank\n2\n")  # of which the note is silent
    stamps += [replace(found, ranking=ranking).stamp for ranking in (TABLE, other)]
    assert len(set(stamps)) == 9 and len(stamps[0]) == 16


def test_a_plan_was_written_when_it_says_else_when_its_file_was(tmp_path: Path) -> None:
    found = parent(tmp_path)
    assert written(found.sweep, replace(found.plan, created=1234.5678)) == 1234568
    os.utime(found.sweep.plan_path, (50, 50.25))
    assert written(found.sweep, replace(found.plan, created=None)) == 50250
