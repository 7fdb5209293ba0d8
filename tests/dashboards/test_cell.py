"""A long curve is thinned but keeps its end; a cell differs from its baseline in what counts."""

from __future__ import annotations

from pathlib import Path

from tests.synthetic import small, write_sweep
from tread_lab.dashboards.cell import (
    ADVICE,
    ENDED_BADLY,
    POINTS,
    cell,
    curve,
    differences,
    ending,
)
from tread_lab.frames import trials_frame
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import Judgement


def test_long_curves_have_entries_in_common_and_the_last(lab: Lab) -> None:
    kept = {}
    for length, stride in ((400, 1), (401, 2), (500, 2), (1002, 4)):
        run = lab.run(str(length))
        with run.log() as log:
            for step in range(1, length + 1):
                log(step, **{"train/loss": 2.0, "train/lr": 1e-4})
        kept[length] = curve(run)["step"]
        whole = range(stride, length + 1, stride)
        assert kept[length] == sorted({*whole, length}) and len(whole) <= POINTS
    assert set(kept[500][1::2]) <= set(kept[1002])


def test_a_short_curve_is_whole_and_what_is_not_finite_is_a_hole(lab: Lab) -> None:
    run = lab.run("abc")
    with run.log() as log:
        log(5, **{"train/loss": 2.0})
        log(10, **{"train/loss": float("inf")})
    assert curve(run) == {"step": [5, 10], "loss": [2.0, None]}


def test_seeds_and_execution_are_no_differences() -> None:
    dense = {"routes": [], "seed": 0, "execution": {"workers": 0}, "train": {"lr": 1e-4}}
    routed = {
        "routes": [
            {"start": 2, "end": 8, "rate": 0.5},
            {"start": 9, "end": 9, "rate": 0.25, "selection": "rows"},
        ],
        "seed": 1,
        "execution": {"workers": 2},
        "train": {"lr": 1e-4, "clip": 1.0},
    }
    assert differences(dense, routed) == [
        ["routes", "none", "2->8 s=0.5 + 9->9 by rows s=0.25"],
        ["train.clip", "absent", "1.0"],
    ]


def test_a_time_that_other_work_on_the_machine_decided_is_marked(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(similarity=False))
    plan, frame = lab.sweep("placement").plan(), trials_frame(lab, "placement")
    frame.loc[1, ["throughput/step_seconds", "heldout/loss"]] /= 10
    marked = [m["metric"] for m in cell(lab, plan, frame, 1)["metrics"] if m["disturbed"]]
    assert marked == ["throughput/step_seconds"]


def test_training_losses_are_compared_only_if_they_are_one_loss(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(similarity=False))
    plan, frame = lab.sweep("placement").plan(), trials_frame(lab, "placement")
    frame.loc[1, "loss"] = "both"
    assert [cell(lab, plan, frame, number)["one_loss"] for number in (1, 2)] == [False, True]
    assert not cell(lab, plan, frame.drop(columns="loss"), 2)["one_loss"]  # records not read yet


def test_a_failure_has_its_traceback_and_what_to_do(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(states={(2, 8): "failed"}))
    plan = lab.sweep("placement").plan()
    run = lab.run(plan.trials[2].run)
    attempt = run.open_attempt(host="node7", pid=123)
    run.close_attempt(
        attempt, "oom", reason="out of memory", traceback=f"Traceback {5000 * '.'} here"
    )
    sweep = lab.sweep("placement")
    tree = ending(run, sweep)
    assert tree is not None
    assert tree["traceback"].endswith("... here") and len(tree["traceback"]) == 4000
    advice = "Mend what the traceback names, then `{} --retry-failed` runs it again."
    assert tree["advice"] == advice.format("tread-lab sweep placement.yaml --name placement")
    sweep.keep_command(["sweep", "x.yaml", "seeds=[0, 1]"])
    asked = f"cd {Path.cwd()} && tread-lab sweep x.yaml 'seeds=[0, 1]'"
    assert (ending(run, sweep) or {})["advice"] == advice.format(asked)
    for state in ENDED_BADLY:
        assert state in ADVICE


def test_a_run_that_its_sweep_stopped_is_told_why_and_one_at_work_again_has_not_ended(
    tmp_path: Path,
) -> None:
    lab = write_sweep(tmp_path, small(states={(0, 4): "failed", (2, 8): "interrupted"}))
    sweep = lab.sweep("placement")
    plan = sweep.plan()
    again, worse = (lab.run(trial.run) for trial in plan.trials[1:3])
    sweep.add_judgement(Judgement(worse.name, 7, 0.5))
    frame = trials_frame(lab, "placement")
    ended = cell(lab, plan, frame, 2)["ended"]
    assert ended["kind"] == "early" and ended["advice"].startswith("It was worse than others")
    again.reopen()
    with again.lock():
        detail = cell(lab, plan, frame, 1)
    assert (detail["state"], detail["ended"]) == ("failed", None)
