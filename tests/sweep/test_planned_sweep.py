"""`load_sweep` plans as the command does; runs that the lab has are neither open nor paid for."""

from __future__ import annotations

import json
from pathlib import Path

from tests.pretender import ended_run
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import Judgement
from tread_lab.sweep.planned_sweep import load_sweep


def test_each_row_says_what_a_trial_is_and_costs_and_nothing_is_stored(tmp_path: Path) -> None:
    overrides = ("train.steps=100", "match=null", "axes.rate=[0.25,0.75]")
    planned = load_sweep("route_placement.yaml", "controls=[]", *overrides, path=tmp_path)
    rows = planned.trials
    assert rows.columns[:6].tolist() == ["run", "label", "role", "seed", "state", "baseline"]
    assert {*rows.columns[6:]} == {"start", "end", "rate", "steps", "speedup", "train_flops"}
    assert rows["run"].tolist() == [trial.run for trial in planned.plan.trials]
    assert len(rows) == 1 + 2 * 16 and set(rows["state"]) == {"pending"}
    assert rows["rate"].dropna().unique().tolist() == [0.25, 0.75]
    assert rows["start"].dtype == "Int64"
    dense, routed = rows.iloc[0], rows.iloc[1]
    assert (dense["role"], dense["label"], dense["speedup"]) == ("baseline", "dense seed 0", 1.0)
    assert routed["role"] == "trial" and routed["baseline"] == dense["run"]
    assert routed["train_flops"] < dense["train_flops"] and routed["speedup"] > 1
    assert planned.train_flops == rows["train_flops"].sum()
    assert not any(tmp_path.iterdir())


def test_runs_of_the_lab_are_done_already(tmp_path: Path) -> None:
    sweep = load_sweep("route_placement.yaml", "controls=[]", "evaluate=[]", path=tmp_path)
    for trial in sweep.plan.trials[:10]:
        ended_run(Lab(tmp_path), trial.spec, "diverged", step=1)
    later = load_sweep("route_placement.yaml", "controls=[]", "evaluate=[]", path=tmp_path)
    assert later.trials["state"].tolist() == ["diverged"] * 10 + ["pending"] * 7
    last = sweep.plan.trials[-1].run
    with Lab(tmp_path).run(last).log() as log:
        log(1, **{"train/loss": 1.0})
    Lab(tmp_path).sweep("route_placement").add_judgement(Judgement(last, 1, 0.5))
    later = load_sweep("route_placement.yaml", "controls=[]", "evaluate=[]", path=tmp_path)
    assert later.trials["state"].iloc[-1] == "stopped", "early, as everywhere"


def test_under_a_search_the_rows_are_the_baselines_that_all_cells_share(tmp_path: Path) -> None:
    search = "search={sampler: random, trials: %d, objectives: [cost/train_flops]}"
    one, eight = (
        load_sweep("route_placement.yaml", "controls=[]", search % n, path=tmp_path) for n in (1, 8)
    )
    assert one.trials["role"].tolist() == eight.trials["role"].tolist() == ["baseline"]


def test_cells_left_out_are_counted_by_reason(in_folder: Path) -> None:
    tree = {"experiment": "tiny", "axes": {"route": ["0->1", "0->2", "0->2"]}, "where": "end < 2"}
    Path("s.yaml").write_text(json.dumps(tree))
    left_out = [[1, "where: end < 2"], [1, "written again"]]
    assert load_sweep("s.yaml").left_out[["cells", "reason"]].values.tolist() == left_out


def test_planned_sweep_shows_its_size(tmp_path: Path) -> None:
    at_equal_steps = ("controls=[]", "experiment=tiny", "match=null", "evaluate=[]")
    planned = load_sweep("route_placement.yaml", *at_equal_steps, path=tmp_path)
    assert {trial.spec.precision for trial in planned.plan.trials} == {"fp32"}
    text = "route_placement: 17 runs of tiny, 12.1 TFLOP, at most 261 MB on the disk"
    assert repr(planned) == text
