"""An edited sweep file: only the difference is trained, and finished runs keep their records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tasks.conftest import (
    DONE,
    FIXED,
    INLINE,
    MISTAKE,
    PROBE,
    Answer,
    Command,
    attempts,
    measured,
    trials,
)
from tread_lab.records.lab import Lab

Sweep = Callable[..., Answer]
FILE = f"{FIXED}axes: {{route: [0->1]}}\nseeds: [0]\n{PROBE}"
TWO = FILE.replace("[0->1]", "[0->1, 1->2]")


@pytest.mark.task(10, 11)
@pytest.mark.parametrize(
    ("edited", "cells", "seeds"),
    [
        (FILE.replace("seeds: [0]", "seeds: [0, 1]"), ["dense", "0->1"], [0, 1]),
        (TWO, ["dense", "0->1", "1->2"], [0]),
    ],
    ids=["seed", "cell"],
)
def test_what_the_edit_adds_is_trained_alone(
    edited: str, cells: list[str], seeds: list[int], run_sweep: Sweep, lab: Lab
) -> None:
    run_sweep(FILE)
    before = {run.name: run.log_path.read_bytes() for run in lab.runs()}
    run_sweep(edited, "--extend")
    frame = trials(lab)
    assert sorted({*zip(frame["route"], frame["seed"])}) == sorted(
        (cell, seed) for cell in cells for seed in seeds
    )
    assert (frame["state"] == "completed").all()
    assert {name: lab.run(name).log_path.read_bytes() for name in before} == before
    assert {*attempts(lab).values()} == {1} and len(attempts(lab)) == len(cells) * len(seeds)


@pytest.mark.task(12)
def test_a_cell_that_leaves_the_file_still_counts(run_sweep: Sweep, lab: Lab) -> None:
    run_sweep(TWO)
    before = attempts(lab)
    run_sweep(FILE, "--extend")
    frame = trials(lab)
    assert sorted(frame["route"]) == ["0->1", "1->2", "dense"]
    assert frame.set_index("route")["gap/heldout"].notna()["1->2"]
    assert attempts(lab) == before


@pytest.mark.task(13)
def test_an_added_evaluation_at_a_kept_step_trains_nothing(run_sweep: Sweep, lab: Lab) -> None:
    run_sweep(FILE)
    before = attempts(lab)
    run_sweep(FILE.replace("levels: 2", "levels: 2, at: [2, end]"), "--extend")
    assert sorted(record["step"] for record in measured(lab)) == [2, 2, 4, 4]
    assert attempts(lab) == before


@pytest.mark.xfail(strict=True, reason="a step whose checkpoint is gone is not trained again")
@pytest.mark.task(13)
def test_an_added_evaluation_at_another_step_trains_again(run_sweep: Sweep, lab: Lab) -> None:
    run_sweep(FILE)
    run_sweep(FILE.replace("levels: 2", "levels: 2, at: [3, end]"), "--extend")
    assert sorted(record["step"] for record in measured(lab)) == [3, 3, 4, 4]


@pytest.mark.task(14)
def test_another_match_trains_other_lengths_alone(run_sweep: Sweep, lab: Lab) -> None:
    run_sweep(FILE)
    before = attempts(lab)
    run_sweep(f"match: train_flops{FILE}", name="matched")
    frame = trials(lab, "matched").set_index("route")
    assert frame["train.steps"].to_dict() == {"dense": 4, "0->1": 6}
    assert before.items() <= attempts(lab).items() and len(attempts(lab)) == len(before) + 1


@pytest.mark.task(15)
def test_two_sweeps_share_equal_runs(run_sweep: Sweep, lab: Lab) -> None:
    run_sweep(FILE)
    before = {run.name: run.log_path.read_bytes() for run in lab.runs()}
    run_sweep(TWO, name="other")
    assert {name: lab.run(name).log_path.read_bytes() for name in before} == before
    assert len(attempts(lab)) == 3 and {*attempts(lab).values()} == {1}
    shared = trials(lab).set_index("route")["heldout/loss"]
    assert trials(lab, "other").set_index("route")["heldout/loss"][shared.index].equals(shared)


@pytest.mark.task(16)
def test_an_edit_that_shares_nothing_asks_for_a_name(
    run_sweep: Sweep, run_command: Command, lab: Lab
) -> None:
    run_sweep(FILE)
    before = attempts(lab)
    Path("small.yaml").write_text(FILE.replace("steps: 4", "steps: 5"))
    refused = run_command("sweep small.yaml", *INLINE)
    assert refused.code == MISTAKE and "--name" in refused.mistake
    assert attempts(lab) == before
    assert run_command("sweep small.yaml --name longer", *INLINE).code == DONE
    assert lab.sweeps() == ["longer", "small"] and len(attempts(lab)) == 2 * len(before)
