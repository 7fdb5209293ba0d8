"""A placement sweep becomes a rule in the depth, as sure as its seeds allow and no surer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.synthetic import Synthetic, heldout_gap, write_sweep
from tread_lab.analysis.figures.sentences import joined, routed
from tread_lab.analysis.recommend.recommendation import (
    Evidence,
    Rule,
    best_rule,
    evidence_of,
    recommend,
)
from tread_lab.analysis.recommend.wording import as_lines, as_tree, write_experiment
from tread_lab.analysis.report.answer import answer
from tread_lab.cli import main
from tread_lab.config import load
from tread_lab.frames import trials_frame
from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec, UserError, decode

ROUTES = ((0, 4), (0, 5), (0, 8), (0, 10), (2, 8), (4, 8))


def swept(root: Path, *, seeds: int, noise: float = 0.0, **changes) -> Lab:
    """Six of the paper's placements; each run's gap is moved by its own noise."""
    options = {"routes": ROUTES, "history": False, "similarity": False, **changes}
    lab = write_sweep(root, Synthetic(seeds=range(seeds), **options))
    rng = np.random.default_rng(0)
    for trial in lab.sweep("placement").plan().trials:
        if trial.role == "trial":
            for path in lab.run(trial.run).path.glob("evaluations/*/losses.npz"):
                with np.load(path) as file:
                    arrays = dict(file)
                arrays["dense"] += noise * rng.normal()
                np.savez(path, **arrays)
    return lab


def test_three_clear_seeds_establish_the_papers_rule(tmp_path: Path) -> None:
    found = recommend(swept(tmp_path, seeds=3, noise=1e-4), "placement")
    assert found.rule == Rule(2, "B-4", 0.5) and found.verdict == "established"
    (evidence,) = found.evidence
    assert evidence.gap.unit == "seeds" and evidence.cells["best"].sum() == 1
    assert evidence.seeds_needed == 2
    assert evidence.gap.low <= -0.0015 <= evidence.gap.high and evidence.gap.n == 3


def test_noisy_seeds_leave_it_undecided_and_say_how_many_more(tmp_path: Path) -> None:
    found = recommend(swept(tmp_path, seeds=3, noise=8e-3), "placement")
    (evidence,) = found.evidence
    assert found.verdict == "undecided" and evidence.cells["best"].sum() > 1
    assert evidence.seeds_needed is None or evidence.seeds_needed > 3
    first, *lines = as_lines(found)
    assert first == "route 2->B-4 at rate 0.5: undecided, other placements may be as good or better"
    assert any("would distinguish it from" in line for line in lines)
    assert len(as_tree(found)["evidence"][0]["best_set"]) == evidence.cells["best"].sum()


@pytest.mark.parametrize(("seeds", "noise", "rivals"), [(1, 4e-3, 1), (2, 6e-3, 2), (3, 5e-3, 1)])
def test_the_best_set_is_what_the_answer_of_the_report_cannot_tell_from_the_best(
    seeds: int, noise: float, rivals: int, tmp_path: Path
) -> None:
    lab = swept(tmp_path, seeds=seeds, noise=noise, images=4)
    (e,) = recommend(lab, "placement").evidence
    best, *tied = e.cells.loc[e.cells["best"], "cell"]
    frame = trials_frame(lab, "placement")
    said = answer(lab, frame, lab.sweep("placement").plan()).sentence
    assert len(tied) == rivals
    assert f"{routed(best)} cannot be distinguished from {joined(tied)}; every other" in said


@pytest.mark.parametrize(("seeds", "unit"), [(1, "images"), (2, "seeds")])
def test_one_or_two_seeds_establish_nothing(tmp_path: Path, seeds: int, unit: str) -> None:
    found = recommend(swept(tmp_path, seeds=seeds), "placement")
    assert found.rule == Rule(2, "B-4", 0.5) and found.verdict == "insufficient"
    assert found.evidence[0].gap.unit == unit and "not established" in as_lines(found)[0]
    assert found.evidence[0].seeds_needed == (None if seeds == 1 else 2)


def test_unfinished_placements_are_left_out_and_counted(tmp_path: Path) -> None:
    lab = swept(tmp_path, seeds=3, states={((2, 8), 1): "failed", (0, 5): "pending"})
    found = recommend(lab, "placement")
    assert found.evidence[0].unfinished == 2 and found.rule.at(12) != (2, 8, 0.5)
    assert any("2 placements are left out" in line for line in as_lines(found))


def test_a_rule_that_means_another_placement_than_the_best_of_a_depth_is_undecided(
    tmp_path: Path,
) -> None:
    """Of 24 blocks 0->8 and 0->10 are there alone, which are no rule that means 2->8 of 12."""
    better = {"heldout": lambda route: heldout_gap(route) - 0.02}
    lab = swept(tmp_path, seeds=3, noise=1e-5, **better)
    path = lab.sweep("placement").plan_path
    plan = json.loads(path.read_text())
    for trial in plan["trials"]:
        if (trial["cell"].get("start"), trial["cell"].get("end")) in ((0, 8), (0, 10)):
            trial["spec"]["model"]["depth"] = 24
    path.write_text(json.dumps(plan))
    found = recommend(lab, "placement")
    assert found.rule == Rule(0, "4/12", 0.5)
    assert [evidence.cells["best"].sum() for evidence in found.evidence] == [1, 1]
    assert found.verdict == "undecided"


def test_the_experiment_is_the_sweeps_run_with_the_rule(tmp_path: Path) -> None:
    lab = swept(tmp_path, seeds=3)
    found, path = recommend(lab, "placement"), tmp_path / "mine.yaml"
    write_experiment(lab, found, path)
    write_experiment(lab, found, path)  # its own file is replaced
    text = path.read_text()
    assert text.startswith("# What does") and "established" in text and "tread-lab train" in text
    for depth, route in ((12, "2->8"), (24, "2->20")):
        experiment = load.load_experiment(str(path), [f"model.depth={depth}"])
        spec = decode(RunSpec, experiment.run)
        assert str(spec.routes[0]) == route and spec.train.steps == 400
    assert experiment.evaluate
    other = tmp_path / "other.yaml"
    other.write_text("question: mine")
    with pytest.raises(UserError, match="--out"):
        write_experiment(lab, found, other)


def test_the_experiment_is_as_long_as_the_runs_that_were_compared(tmp_path: Path) -> None:
    """Matched runs go on for 520 steps; at equal steps they are compared at step 400."""
    lab = swept(tmp_path, seeds=2, routes=((0, 4), (2, 8)))
    found, path = recommend(lab, "placement"), lab.sweep("placement").plan_path
    plan = json.loads(path.read_text())
    for trial in plan["trials"]:
        trial["spec"]["train"]["steps"] += 120 * (trial["role"] == "trial")
    path.write_text(json.dumps(plan))
    for comparison, steps in (("at equal steps", 400), ("at equal training FLOPs", 520)):
        written = tmp_path / f"{steps}.yaml"
        write_experiment(lab, replace(found, comparison=comparison), written)
        assert load.load_experiment(str(written), []).run["train"]["steps"] == steps


@pytest.mark.parametrize("seeds", [1, 2])
def test_at_equal_steps_the_numbers_are_those_of_the_baselines_last_step(
    seeds: int, tmp_path: Path
) -> None:
    """Matched runs go on for 520 steps, by which 2->8 is the worst."""
    steps: dict = {"steps": 520, "routes": ((0, 4), (2, 8), (4, 8))}
    for name, stages in (("measured", (400,)), ("unmeasured", ())):
        lab = swept(tmp_path / name, seeds=seeds, stages=stages, **steps)
        path = lab.sweep("placement").plan_path
        plan = {**json.loads(path.read_text()), "sweep": {"sweep": {"match": "train_flops"}}}
        for trial in plan["trials"]:
            trial["spec"]["train"]["steps"] -= 120 * (trial["role"] == "baseline")
            if trial["cell"].get("start") == 2:
                for end in lab.run(trial["run"]).end_evaluations():
                    for losses in end.path.glob("losses.npz"):
                        arrays = dict(np.load(losses))
                        np.savez(losses, **{**arrays, "dense": arrays["dense"] + 0.1})
        path.write_text(json.dumps(plan))
        if stages:
            ends, found = (recommend(lab, "placement", equal_steps=e) for e in (False, True))
            assert (ends.rule.start, ends.comparison) == (4, "at equal training FLOPs")
            assert (found.rule, found.comparison) == (Rule(2, "B-4", 0.5), "at equal steps")
            assert found.evidence[0].gap.mean == pytest.approx(-0.0015)
            assert found.evidence[0].cells["best"].tolist() == [True, False, False]
        else:
            with pytest.raises(UserError, match="no run was measured `at baseline`"):
                recommend(lab, "placement", equal_steps=True)


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swept(tmp_path, seeds=3, noise=1e-4)
    assert main(["recommend", "placement", "--root", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("route 2->B-4 at rate 0.5: established")
    assert (tmp_path / "sweeps/placement/recommended.yaml").exists()
    there = tmp_path / "there.yaml"
    command = ["recommend", "placement", "--root", str(tmp_path), "--json", "--out", str(there)]
    assert main(command) == 0 and there.exists()
    tree = json.loads(capsys.readouterr().out)
    assert tree["rule"] == {"start": 2, "end": "B-4", "rate": 0.5}
    assert tree["experiment"] == str(there)


@pytest.mark.parametrize(("axis", "values"), [("train.lr", (0, 1)), ("note", (None, "sprint"))])
def test_a_sweep_that_varies_something_else_is_refused(
    axis: str, values: tuple, tmp_path: Path
) -> None:
    lab = swept(tmp_path, seeds=2)
    path = lab.sweep("placement").plan_path
    plan = json.loads(path.read_text())
    for trial in plan["trials"]:
        if trial["role"] == "trial":
            trial["cell"][axis] = values[trial["cell"]["start"] > 0]
    path.write_text(json.dumps(plan))
    with pytest.raises(UserError, match=rf"also varies {axis}"):
        recommend(lab, "placement")


def test_where_dense_is_best_no_route_is_recommended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worse = {"heldout": lambda route: 0.02 + 0.001 * abs(route[1] - 8)}
    swept(tmp_path, seeds=3, noise=1e-4, **worse)
    command = ["recommend", "placement", "--root", str(tmp_path)]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert out.startswith("dense: the best placement, ") and "experiment:" not in out
    assert not (tmp_path / "sweeps/placement/recommended.yaml").exists()
    assert main([*command, "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert tree["verdict"] == "dense" and tree["rule"] is None and tree["experiment"] is None
    assert tree["best_placement"]["rate"] == 0.5


def measured(depth: int, best: tuple[int, int]) -> Evidence:
    """All placements of a depth, their values the distance to the best one, three seeds alike."""
    places = [(i, j) for i in range(depth - 1) for j in range(i, depth - 1)]
    cells = pd.DataFrame(places, columns=["start", "end"]).assign(rate=0.5)
    apart = (cells[["start", "end"]] - best).abs().sum(axis=1).to_numpy()
    values = apart + np.random.default_rng(depth).normal(scale=0.01, size=(3, len(places)))
    return Evidence(depth, cells.assign(**{"gap/heldout": values.mean(axis=0)}), values)


@pytest.mark.parametrize(
    ("bests", "rule"),
    [
        (((2, 8), (2, 20)), Rule(2, "B-4", 0.5)),
        (((2, 8), (4, 16)), Rule("2/12", "8/12", 0.5)),
        (((2, 8), (2, 8)), Rule(2, 8, 0.5)),
        (((2, 8), (4, 20)), Rule("2/12", "B-4", 0.5)),
    ],
)
def test_two_depths_tell_a_distance_from_a_share(bests: tuple, rule: Rule) -> None:
    assert best_rule([*map(measured, (12, 24), bests)]) == rule


def test_placements_that_no_rule_joins_are_refused() -> None:
    first, second = measured(12, (2, 8)), measured(24, (2, 8))
    evidence = [replace(first, cells=first.cells[:8]), replace(second, cells=second.cells[-8:])]
    with pytest.raises(UserError, match="no rule in the depth means a measured placement"):
        best_rule(evidence)


def test_a_rule_means_a_placement_at_each_depth() -> None:
    from_the_end, share = Rule(2, "B-4", 0.25), Rule("2/12", "8/12", 0.5)
    assert [from_the_end.at(depth) for depth in (12, 28)] == [(2, 8, 0.25), (2, 24, 0.25)]
    assert share.at(24) == (4, 16, 0.5) and str(share) == "2/12->8/12 at rate 0.5"


def lab_of(folder: Path, *routes: tuple[int, int]) -> Lab:
    """A made sweep with two seeds over these routes."""
    shape = Synthetic(routes=routes, seeds=(0, 1), history=False, similarity=False)
    return write_sweep(folder, shape)


def test_evidence_holds_seeds_by_placements_the_best_first(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, (0, 2), (2, 8), (1, 5))
    frame = trials_frame(lab, "placement")
    depths = dict.fromkeys(frame["run"], 12)
    (found,) = evidence_of(lab, frame, depths)
    assert found.places == [(2, 8, 0.5), (1, 5, 0.5), (0, 2, 0.5)]
    assert (found.depth, found.unfinished) == (12, 0)
    trials = frame[frame["role"] == "trial"].set_index(["start", "seed"])
    for seed in (0, 1):
        for column, start in enumerate((2, 1, 0)):
            assert found.values_SK[seed, column] == trials.loc[(start, seed), "gap/heldout"]
    best = found.cells.iloc[0]
    assert best["run"] == trials.loc[(2, 0), "run"] and best["cell"] == "2->8 s=0.5"
    other = frame.assign(run=frame["run"] + "x", cell=frame["cell"] + " by rows")
    twice = pd.concat([frame, other[other["role"] == "trial"]])
    twice.attrs = frame.attrs
    with pytest.raises(UserError, match="by rows is not the only cell of its placement"):
        evidence_of(lab, twice, {**depths, **dict.fromkeys(twice["run"], 12)})
    place = ["route", "start", "end", "rate"]
    frame.loc[frame["role"] == "baseline", place] = ["3->7", 3, 7, 0.5]  # routed, and no trial
    assert evidence_of(lab, frame, depths)[0].places == found.places


def test_two_depths_are_told_apart_and_one_placement_makes_no_rule(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, (0, 2), (2, 8), (1, 5), (1, 6))
    frame = trials_frame(lab, "placement")
    deep = set(frame[frame["start"] == 1]["run"])
    found = evidence_of(lab, frame, {run: 24 if run in deep else 12 for run in frame["run"]})
    assert {e.depth: sorted(e.places) for e in found} == {
        12: [(0, 2, 0.5), (2, 8, 0.5)],
        24: [(1, 5, 0.5), (1, 6, 0.5)],
    }
    one = frame[frame["route"].isin(["dense", "2->8"])]
    with pytest.raises(UserError, match="fewer than two placements are measured with every seed"):
        evidence_of(lab, one, dict.fromkeys(frame["run"], 12))
