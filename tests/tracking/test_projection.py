"""The stamp of a trial in MLflow follows all that its view is made from."""

from __future__ import annotations

import os
from dataclasses import replace

from tests.tracking.conftest import GUIDED, HELDOUT, SAMPLES, Sweeps
from tread_lab.records.status import RunState
from tread_lab.tracking.projection import Projection
from tread_lab.tracking.trial_names import trials_of


def stamp(sweeps: Sweeps) -> str:
    """The stamp of the first routed trial, as a sync that begins now would find it."""
    plan = sweeps.lab.sweep("placement").plan()
    trial = next(t for t in trials_of("placement", plan) if t.stored.role == "trial")
    return Projection(sweeps.lab, plan).stamp(trial, RunState.COMPLETED)


def test_a_trial_is_shown_anew_when_another_plan_names_its_metrics(sweeps: Sweeps) -> None:
    sweeps.complete(evaluate=(SAMPLES,))
    alone = stamp(sweeps)
    sweeps.plan(evaluate=(SAMPLES, GUIDED))  # `fd@1k` becomes `fd@1k w=1`
    assert stamp(sweeps) != alone


def test_a_trial_is_shown_anew_when_its_baseline_is_measured_later(sweeps: Sweeps) -> None:
    baseline, trial, _ = sweeps.plan()
    sweeps.finish(trial)
    alone = stamp(sweeps)
    sweeps.finish(baseline)
    compared = stamp(sweeps)
    sweeps.lab.run_of(baseline).evaluation(HELDOUT).write(HELDOUT, {"heldout/loss": 2.0})
    assert len({alone, compared, stamp(sweeps)}) == 3


def test_a_trial_is_shown_anew_when_another_attempt_has_begun(sweeps: Sweeps) -> None:
    _, trial, _ = sweeps.plan()
    run = sweeps.finish(trial)
    before = stamp(sweeps)
    run.write_origin({"code": "def5678", "device": "cpu"})
    assert stamp(sweeps) != before


def test_a_trial_is_shown_anew_when_its_name_or_what_varies_is_another(sweeps: Sweeps) -> None:
    _, spec, _ = sweeps.plan()
    sweeps.finish(spec)
    plan = sweeps.lab.sweep("placement").plan()
    trial = next(t for t in trials_of("placement", plan) if t.stored.role == "trial")
    projection = Projection(sweeps.lab, plan)
    others = (
        replace(trial, varied={**trial.varied, "train.lr": 2e-4}),
        replace(trial, label="0->2 lr=0.0002"),
        replace(trial, key="another sweep"),
    )
    stamps = [projection.stamp(one, RunState.COMPLETED) for one in (trial, *others)]
    assert len(set(stamps)) == 4
    assert projection.stamp(replace(trial), RunState.COMPLETED) == stamps[0]


def test_a_run_ends_no_earlier_than_its_last_entry(sweeps: Sweeps) -> None:
    _, spec, _ = sweeps.plan()
    run = sweeps.finish(spec)
    plan = sweeps.lab.sweep("placement").plan()
    trial = next(t for t in trials_of("placement", plan) if t.stored.role == "trial")
    last = max(entry.time for entry in run.entries())
    for changed in (last - 50, last + 50):
        os.utime(run.path / "result.json", (changed, changed))
        view = Projection(sweeps.lab, plan).view(trial, RunState.COMPLETED)
        assert view.ended == round(1000 * max(last, changed))


def test_a_run_starts_no_later_than_its_first_entry(sweeps: Sweeps) -> None:
    _, spec, _ = sweeps.plan()
    run = sweeps.finish(spec)
    plan = sweeps.lab.sweep("placement").plan()
    trial = next(t for t in trials_of("placement", plan) if t.stored.role == "trial")
    first = min(entry.time for entry in run.entries())
    for changed, started in ((first - 50, first - 50), (first + 50, first)):
        os.utime(run.path / "spec.yaml", (changed, changed))
        view = Projection(sweeps.lab, plan).view(trial, RunState.COMPLETED)
        assert view.started == round(1000 * started)
