"""The page of a sweep holds what its records say, whatever the shape of the sweep."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.synthetic import small, write_sweep
from tread_lab.config import UserError
from tread_lab.dashboards.contents import contents, page_file, versus_file
from tread_lab.dashboards.search import search_charts, study_of
from tread_lab.dashboards.server import Pages, sweep_line
from tread_lab.dashboards.tables import cost_table
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import GAP_HELDOUT, STEP_SECONDS
from tread_lab.results import ranking_key, trials_frame
from tread_lab.results.sweep_frames import versus


def test_placements_have_a_map(paper_lab: Lab) -> None:
    found = contents(paper_lab, "placement")
    chart = found["charts"][0]
    assert chart.title.startswith("Route placement")
    drawn = json.loads(chart.json)
    letters = {mark["text"] for mark in drawn["layout"]["annotations"]}
    assert letters >= {"D", "F", "S"}
    assert len(drawn["layout"]["shapes"]) == 1  # the best is outlined


def test_failures_name_reason_and_remedy(paper_lab: Lab) -> None:
    found = {f["state"]: f for f in contents(paper_lab, "placement")["failures"]}
    assert found.keys() >= {"failed", "diverged", "stopped"}
    assert "--retry-failed" in found["failed"]["remedy"]
    assert "lower train.lr" in found["diverged"]["remedy"]


def test_file_loads_nothing_and_escapes_names(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(specs=True, pictures=True))
    path = lab.sweep("placement").plan_path
    plan = json.loads(path.read_text())
    plan["question"] = "<script>alert(1)</script> & more"
    path.write_text(json.dumps(plan))
    text = page_file(lab, "placement")
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)" in text
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="(https?:)?//', text)
    assert "data:image/png;base64" in text
    assert len(text) < 8e6


def test_a_sweep_without_results_shows_losses(tmp_path: Path) -> None:
    states = dict.fromkeys(((0, 4), (2, 8), (5, 8), None), "interrupted")
    lab = write_sweep(tmp_path, small(states=states, history=True, specs=True))
    found = contents(lab, "placement")
    assert [chart.title for chart in found["charts"]] == ["Training loss"]
    assert found["ranking"] is None and "no answer yet" in found["answer"].result


@pytest.mark.parametrize(
    ("gap", "use"),
    [(-0.01, "Train 0→4 s=0.5, the best"), (0.01, "No cell is shown to be better. Train dense")],
)
def test_commands_train_dense_unless_a_cell_is_better(gap: float, use: str, tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(heldout=lambda route: gap + 1e-4 * route[0]))
    found = contents(lab, "placement")
    repeat, roles = found["repeat"], found["frame"].set_index("run")["role"]
    assert repeat["use"].startswith(use)
    assert (roles[repeat["winner"].split()[-2]] == "trial") == (gap < 0)
    assert "not recorded" in repeat["how"] and "tread-lab train run.yaml" in repeat["commands"]


def test_speed_ups_agree_with_seconds_beside_them(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(seeds=(0, 1, 2)))
    frame = trials_frame(lab, "placement")
    frame[STEP_SECONDS] *= 1 + frame["seed"] * (frame["role"] == "trial")
    shown = cost_table(frame)
    assert shown is not None
    at, seconds = (shown.heads.index(head) for head in ("speed-up, measured", "seconds a step"))
    of_step = [float(row[seconds].removesuffix(" s")) for row in shown.rows]
    assert [float(row[at][:-1]) for row in shown.rows] == pytest.approx(
        [of_step[0] / own for own in of_step], abs=0.006
    )
    busy = cost_table(frame.assign(disturbed=True))
    assert busy is not None and {row[at] for row in busy.rows} == {"disturbed"}


def test_a_search_has_optunas_pictures(paper_lab: Lab) -> None:
    frame = trials_frame(paper_lab, "placement")
    key = ranking_key(frame)
    assert key is not None
    study = study_of(frame, key)
    assert len(study.trials) == 16 and study.best_value == frame[key].min()
    assert [c.title for c in search_charts(frame, key)] == [
        "History", "Parallel coordinates", "Importance", "Slice"
    ]  # fmt: skip


def test_two_sweeps_are_paired_by_seed(tmp_path: Path) -> None:
    for name, shift in (("a", 0.0), ("b", 0.002)):
        lab = write_sweep(
            tmp_path, small(name=name, seeds=(0, 1), seed_shift={0: shift, 1: shift}, steps=400)
        )
    metric, rows = versus(lab, "a", "b")
    assert metric == GAP_HELDOUT and len(rows) == 3
    assert not rows["value"].any()  # equal settings are one run, whatever sweep asks for it
    assert "b minus a" in versus_file(lab, "a", "b")
    write_sweep(tmp_path, small(name="c", routes=((1, 1),)))
    with pytest.raises(UserError, match="share a measured cell"):
        versus(lab, "a", "c")


def test_sweeps_are_listed_with_their_best(paper_lab: Lab, tmp_path: Path) -> None:
    line = sweep_line(paper_lab, "placement")
    assert line["best"].startswith("2→8 s=0.5") and "completed" in line["states"]
    assert b"No sweep has been planned" in Pages(Lab(tmp_path)).index().body
