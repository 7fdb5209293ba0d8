"""A placement sweep becomes a rule in the depth, as sure as its seeds allow and no surer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.synthetic import PAPER_PLACEMENTS, Synthetic, write_sweep
from tread_lab.analysis.recommend import recommendation
from tread_lab.analysis.recommend.placement_rule import Rule
from tread_lab.analysis.recommend.recommendation import recommend
from tread_lab.analysis.recommend.wording import as_lines, as_tree, write_experiment
from tread_lab.cli import main
from tread_lab.config import load
from tread_lab.frames import trials_frame
from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec, UserError, decode


def swept(root: Path, *, seeds: int, noise: float = 0.0, **changes) -> Lab:
    """The paper's placements; each run's gap is moved by its own noise."""
    options = {"routes": PAPER_PLACEMENTS, "history": False, "similarity": False, **changes}
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
    assert evidence.gap.unit == "seeds" and evidence.best.size == 1 and evidence.seeds == 2
    assert evidence.gap.low <= -0.0015 <= evidence.gap.high and evidence.gap.n == 3


def test_noisy_seeds_leave_it_undecided_and_say_how_many_more(tmp_path: Path) -> None:
    found = recommend(swept(tmp_path, seeds=3, noise=4e-3), "placement")
    (evidence,) = found.evidence
    assert found.verdict == "undecided" and evidence.best.size > 1
    assert evidence.seeds is None or evidence.seeds > 3
    assert any("would distinguish it from" in line for line in as_lines(found))
    assert len(as_tree(found)["evidence"][0]["best_set"]) == evidence.best.size


@pytest.mark.parametrize(("seeds", "unit"), [(1, "images"), (2, "seeds")])
def test_one_or_two_seeds_establish_nothing(tmp_path: Path, seeds: int, unit: str) -> None:
    found = recommend(swept(tmp_path, seeds=seeds), "placement")
    assert found.rule == Rule(2, "B-4", 0.5) and found.verdict == "insufficient"
    assert found.evidence[0].gap.unit == unit and "not established" in as_lines(found)[0]
    assert found.evidence[0].seeds == (None if seeds == 1 else 2)


def test_the_cheapest_of_the_best_set_can_be_asked_for(tmp_path: Path) -> None:
    lab = swept(tmp_path, seeds=3, noise=4e-3)
    best, cheap = recommend(lab, "placement"), recommend(lab, "placement", cheapest=True)
    lengths = [end - start for start, end, _ in (f.rule.at(12) for f in (best, cheap))]
    assert lengths[1] >= lengths[0]
    (e,) = cheap.evidence
    assert e.best.members_K[e.chosen]
    assert e.table.flops_K[e.chosen] == e.table.flops_K[e.best.members_K].min()


def test_each_depth_says_what_pairing_removed_there(tmp_path: Path) -> None:
    """Runs at rate 0.75 become those of another depth, whose losses are noisy."""
    lab = swept(tmp_path, seeds=3, routes=((0, 4), (2, 8)), rates=(0.5, 0.75))
    path, rng = lab.sweep("placement").plan_path, np.random.default_rng(0)
    plan = json.loads(path.read_text())
    deep = [trial for trial in plan["trials"] if trial["cell"].get("rate") == 0.75]
    for trial in deep:
        trial["cell"] |= {"rate": 0.5, "model.depth": 24}
        trial["spec"]["routes"][0]["rate"], trial["spec"]["model"]["depth"] = 0.5, 24
        folder = lab.run(trial["run"]).evaluation(Synthetic().evaluations[0])
        folder.write(Synthetic().evaluations[0], {"heldout/loss": rng.normal()})
    shares = {}
    for name, left_out in (("both", []), ("one", deep)):
        trials = [trial for trial in plan["trials"] if trial not in left_out]
        path.write_text(json.dumps({**plan, "trials": trials}))
        shares[name] = [e.pairing for e in recommend(lab, "placement").evidence]
    assert shares["both"][0] == shares["one"][0] < 1e-3 and shares["both"][1] > 0.5


def test_unfinished_placements_are_left_out_and_counted(tmp_path: Path) -> None:
    lab = swept(tmp_path, seeds=3, states={((2, 8), 1): "failed", (0, 5): "pending"})
    found = recommend(lab, "placement")
    assert found.evidence[0].table.unfinished == 2 and found.rule.at(12) != (2, 8, 0.5)
    assert any("2 placements are left out" in line for line in as_lines(found))


def test_another_metric_may_decide_and_pairing_is_of_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, metric = swept(tmp_path, seeds=3), "fd[fashion16-v1]@1k"
    found = recommend(lab, "placement", metric=metric)
    assert found.rule == Rule(2, "B-4", 0.5)
    frame = trials_frame(lab, "placement")
    seed = frame["seed"].astype(float)  # the less alike the seeds of a route and its baseline are
    lone = frame.assign(**{metric: frame[metric] + 9 * seed.where(frame["role"] == "trial", 0.0)})
    monkeypatch.setattr(recommendation, "trials_frame", lambda lab, sweep: lone)
    (evidence,) = recommend(lab, "placement", metric=metric).evidence
    assert evidence.pairing == pytest.approx(9.0**2 / (9.2**2 + 0.2**2))


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


def test_a_sweep_that_varies_something_else_is_refused(tmp_path: Path) -> None:
    lab = swept(tmp_path, seeds=2)
    path = lab.sweep("placement").plan_path
    plan = json.loads(path.read_text())
    for k, trial in enumerate(plan["trials"]):
        if trial["role"] == "trial":
            trial["cell"]["train.lr"] = k
    path.write_text(json.dumps(plan))
    with pytest.raises(UserError, match=r"also varies train\.lr"):
        recommend(lab, "placement")


@pytest.mark.parametrize("cheapest", [False, True])
def test_where_dense_is_best_no_route_is_recommended(
    cheapest: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worse = {"heldout": lambda route: 0.02 + 0.001 * abs(route[1] - 8)}
    swept(tmp_path, seeds=3, noise=1e-4, **worse)
    command = ["recommend", "placement", "--root", str(tmp_path), *["--cheapest"] * cheapest]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert out.startswith("dense: the best placement, ") and "experiment:" not in out
    assert not (tmp_path / "sweeps/placement/recommended.yaml").exists()
    assert main([*command, "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert tree["verdict"] == "dense" and tree["rule"] is None and tree["experiment"] is None
    assert tree["best_placement"]["rate"] == 0.5
