"""Claims about reading the runs of a sweep."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.synthetic import FD, small, tiny_spec, write_sweep
from tread_lab.frames.reading import Record, Records, numbers
from tread_lab.records.durable import read_json
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import Judgement
from tread_lab.specs import HeldoutSpec, signature

RUN = signature(tiny_spec((2, 8)))


def read(lab: Lab) -> Record:
    """The record of the run of 2->8."""
    return Records(lab, lab.sweep("placement").plan())[RUN]


def test_a_record_is_what_the_folder_of_a_run_holds_now(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(states={(2, 8): "interrupted"}))
    assert read(lab).state == "interrupted"
    lab.run(RUN).finish(RunState.FAILED, step=200, reason="failed on purpose")
    record = read(lab)
    assert (record.state, record.reason, record.steps) == ("failed", "failed on purpose", 200)
    assert (record.costs, record.evaluations) == ({}, {})
    lab.run(RUN).reopen()
    assert read(lab).state == "interrupted"
    lab.sweep("placement").add_judgement(Judgement(RUN, 7, 0.5))
    record = read(lab)
    assert (record.state, record.reason, record.steps) == (
        "stopped",
        "asha at step 7: training gap +0.5000, others are better",
        7,
    )
    shutil.rmtree(lab.run(RUN).path)
    assert read(lab).state == "pending"


def test_evaluations_of_the_plan_come_first_and_in_its_order(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(guided=True))
    other = HeldoutSpec(images=5)
    lab.run(RUN).evaluation(other).write(other, {"heldout/loss": 1.0})
    record, planned = read(lab), lab.sweep("placement").plan().planned
    assert list(record.evaluations) == [*planned, signature(other)] and len(planned) == 3
    assert [FD in tree["metrics"] for tree in record.evaluations.values()] == [
        False, True, True, False
    ]  # fmt: skip
    folders = lab.run(RUN).path / "evaluations"
    losses = [planned[0], signature(other)]
    assert record.losses == {name: folders / name / "losses.npz" for name in losses}


def test_evaluations_of_earlier_steps_have_the_names_of_the_end(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(stages=(200, 100)))
    record, (heldout, samples) = read(lab), lab.sweep("placement").plan().planned
    assert list(record.at_steps) == [100, 200]
    assert all(set(trees) == {heldout, samples} for trees in record.at_steps.values())
    assert {step: list(paths) for step, paths in record.losses_at.items()} == {
        100: [heldout], 200: [heldout]
    }  # fmt: skip
    at_100 = read_json(record.losses_at[100][heldout].parent / "metrics.json")
    assert at_100["spec"]["step"] == 100 and at_100 == record.at_steps[100][heldout]
    assert record.steps == 400
    assert record.costs["cost/train_seconds"] == 46.0


def test_the_numbers_of_an_evaluation_are_its_metrics_and_costs() -> None:
    tree = {"metrics": {"a/b": 1.0}, "cost/x": 2.0, "seconds": 3.0, "spec": {"cost/y": 1}}
    assert numbers(tree) == {"a/b": 1.0, "cost/x": 2.0}
