"""Runs that go wrong by themselves: each is told apart, and the others go on."""

from __future__ import annotations

import pytest

from tests.faults.compare import attempts
from tests.faults.drivers import FAILED, MISTAKE, Place
from tests.tracking.conftest import Store
from tread_lab.records.run_folder import RunFolder
from tread_lab.results import trials_frame

pytestmark = pytest.mark.slow

CASES = """
question: Do the others go on?
experiment: tiny
fixed:
  model: {depth: 4, width: 16}
  train: {steps: 4, warmup: 0, batch: 4}
  execution: {log_every: 1, checkpoint_every: 2}
baseline: null
variants: {case: {fine: {}, bad: %s}}
evaluate: [{heldout_loss: {images: 16, levels: 2}}]
"""
RAISE = """
def broken(original, run, *args, **options):
    if run.spec.train.lr == 0.123:
        raise RuntimeError("a broken part")
    return original(run, *args, **options)
wrap("tread_lab.train.trainer:Trainer.train_step", broken)
"""


def cases(place: Place) -> tuple[RunFolder, RunFolder]:
    """The fine run and the bad one."""
    frame = trials_frame(place.lab, "small").set_index("case")
    return place.lab.run(frame["run"]["fine"]), place.lab.run(frame["run"]["bad"])


@pytest.mark.fault(
    5,
    survived="two attempts, then failed with its traceback; other runs continue; exit code 1",
)
def test_run_that_always_raises_fails(place: Place) -> None:
    place.write(CASES % "{train: {lr: 0.123}}")
    assert place.sweep(prelude=RAISE).wait() == FAILED
    fine, bad = cases(place)
    result = bad.result() or {}
    assert (fine.state(), bad.state(), result["kind"]) == ("completed", "failed", "exception")
    assert "a broken part" in result["reason"] and "in broken" in result["traceback"]
    assert [attempt.ended for attempt in bad.attempts()] == ["exception", "exception"]
    assert place.sweep().wait() == FAILED  # not tried again unasked
    before = attempts(place.lab)
    place.finish("--retry-failed")
    assert (fine.state(), bad.state()) == ("completed", "completed")
    assert attempts(place.lab) == before | {bad.name: before[bad.name] + 1}


@pytest.mark.task(30)
@pytest.mark.fault(6, survived="diverged is a result, without numbers; no retry, exit code 0")
def test_nonfinite_loss_diverges(place: Place) -> None:
    place.mlflow = True
    place.write(CASES % "{train: {lr: 1.0e+30}}")
    driver = place.finish()
    place.mlflow = False
    place.finish()
    fine, bad = cases(place)
    assert (fine.state(), bad.state()) == ("completed", "diverged")
    assert [attempt.ended for attempt in bad.attempts()] == ["diverged"]
    assert "diverged" in driver.said()
    row = trials_frame(place.lab, "small").set_index("run").loc[bad.name]
    assert row["state"] == "diverged" and row.filter(regex="[/@]").isna().all()
    assert sorted(Store(place.lab.root / "mlflow.db").statuses().values()) == [
        "FAILED",
        "FINISHED",
    ]


@pytest.mark.fault(
    7,
    survived="one line names `micro_batch`; the same command resumes with a lower one",
)
def test_out_of_memory(place: Place) -> None:
    file = CASES.replace(", batch: 4}", "}").replace("fine: {}", "fine: {train: {batch: 4}}")
    place.write(file % "{train: {batch: 8000}}")
    limit = "limit_memory(1)"  # less than the step needs, enough to read the records
    driver = place.sweep(prelude=limit)
    assert driver.wait() == MISTAKE and "micro_batch" in driver.said()
    fine, bad = cases(place)
    assert fine.state() == "completed" and bad.result() is None
    assert [attempt.ended for attempt in bad.attempts()] == ["oom"]
