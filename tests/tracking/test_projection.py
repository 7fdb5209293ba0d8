"""Claims about what MLflow shows of a trial."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.pretender import ended_run
from tests.tracking.conftest import GUIDED, HELDOUT, SAMPLES, SIMILARITY, Sweeps, spec_of
from tread_lab.frames import disturbed, trials_frame
from tread_lab.records import metric_names
from tread_lab.records.durable import write_json
from tread_lab.records.plan import StoredPlan
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import Judgement
from tread_lab.specs import RunSpec, encode, signature
from tread_lab.specs.cell import Tree, Trial
from tread_lab.tracking.projection import (
    Number,
    Projection,
    View,
    to_mlflow,
    trials_of,
)

NAMES = {
    "precision[vgg_16.b]@512": "precision:vgg_16.b:512",
    "kid[dinov2,heldout]@10k": "kid:dinov2:heldout:10k",
    "fd[x]@1k w=1.5 CFG+SG(0.5/0.9->0)": "fd:x:1k w:1.5 CFG SG 0.5/0.9-0",
    "fd[x]@1k w=2 interval=[0.3,5.0]": "fd:x:1k w:2 interval:0.3-5.0",
    "odd name!": "odd name_",
    "\u00e9=1": "\u00e9_1",
    **{
        name: name
        for key, name in vars(metric_names).items()
        if key.isupper() and isinstance(name, str)
    },
}


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_one_that_mlflow_accepts(name: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    assert to_mlflow(name) == NAMES[name]
    _validate_metric_name(NAMES[name])


def trial(cell: dict[str, Any], role: str = "trial", seed: int = 0, **spec: Any) -> Trial[Tree]:
    built = spec_of(None, seed, **spec)
    return Trial(role, cell, seed, encode(built), signature(built), None)


def test_the_same_trial_twice_is_one_and_seeds_share_a_label() -> None:
    plan = StoredPlan("s", "", "", (trial({}), trial({}), trial({}, seed=1)), (), {})
    assert [one.label for one in trials_of("s", plan)] == ["dense", "dense"]


def test_a_trial_keeps_its_key_when_the_axes_change_places() -> None:
    plans = [
        StoredPlan("s", "", "", (trial(cell),), (), {})
        for cell in ({"start": 1, "end": 2}, {"end": 2, "start": 1})
    ]
    one, other = (trials_of("s", plan)[0].key for plan in plans)
    assert one == other and one.endswith("/end=2,start=1")


def test_a_baseline_keeps_its_key_when_another_kind_of_baseline_joins() -> None:
    baselines = [trial({}, "baseline", precision=p) for p in ("fp32", "bf16")]
    cells = [
        replace(trial({"precision": p}, precision=p), baseline=baseline.run)
        for p, baseline in zip(("fp32", "bf16"), baselines)
    ]
    alone = StoredPlan("s", "", "", (baselines[0], cells[0]), (), {})
    both = StoredPlan("s", "", "", (*baselines, *cells), (), {})
    one, other = (trials_of("s", plan)[0] for plan in (alone, both))
    assert (one.label, other.label) == ("dense", "dense precision=fp32")
    assert one.key == other.key == f"s/baseline/{baselines[0].run}/"


def test_what_varies_is_told_by_field_but_for_routes_seeds_and_what_is_no_science() -> None:
    specs = (
        {"train": {"steps": 40, "batch": 8, "lr": 1e-4}, "execution": {"workers": 1}},
        {"train": {"steps": 40, "batch": 8, "lr": 2e-4}, "execution": {"workers": 2}},
    )
    trials = [
        trial({"end": 2 + k, "start": 1}, "baseline", seed=k, **spec)
        for k, spec in enumerate(specs)
    ]
    found = trials_of("s", StoredPlan("s", "", "", tuple(trials), (), {}))
    assert [dict(one.varied) for one in found] == [{"train.lr": 1e-4}, {"train.lr": 2e-4}]
    assert [one.key for one in found] == [
        f"s/baseline/{one.run}/end={2 + k},start=1" for k, one in enumerate(trials)
    ]
    alone = trials_of("s", StoredPlan("s", "", "", (trials[0],), (), {}))
    assert dict(alone[0].varied) == {}


def stamp(sweeps: Sweeps, state: RunState = RunState.COMPLETED, **changes: Any) -> str:
    """The stamp of the first routed trial, as a sync that begins now would find it."""
    plan = sweeps.lab.sweep("placement").plan()
    plan = replace(plan, sources=changes.pop("sources", plan.sources))
    trial = next(t for t in trials_of("placement", plan) if t.stored.role == "trial")
    return Projection(sweeps.lab, plan).stamp(replace(trial, **changes), state)


def test_a_trial_is_shown_anew_when_anything_that_is_shown_of_it_changes(sweeps: Sweeps) -> None:
    """Its records, those of its baseline once it has ended, its plan, and how it is named."""
    baseline, trial, _ = sweeps.plan()
    run, dense = sweeps.log(trial, 5, 20), sweeps.lab.run_of(baseline)
    (run.path / "other.txt").touch()
    (folder := run.evaluation(HELDOUT)).path.mkdir(parents=True)
    of_the_run: list[Callable[[], object]] = [
        lambda: sweeps.finish(trial, "failed"),
        lambda: folder.write(HELDOUT, {"heldout/loss": 2.0}),
        lambda: run.open_attempt(origin={"code": "def5678", "device": "cpu"}),  # another attempt
        lambda: sweeps.plan(evaluate=(HELDOUT, SIMILARITY, SAMPLES, GUIDED)),
    ]
    of_its_baseline: list[Callable[[], object]] = [
        lambda: sweeps.finish(baseline),
        lambda: dense.evaluation(HELDOUT).write(HELDOUT, {"heldout/loss": 2.0}),
    ]
    stamps = [stamp(sweeps)]
    for change in (*of_the_run, *of_its_baseline):
        running = stamp(sweeps, RunState.RUNNING)
        change()
        stamps.append(stamp(sweeps))
        assert (stamp(sweeps, RunState.RUNNING) == running) is (change in of_its_baseline)
    for change in ({"varied": {"train.lr": 2e-4}}, {"label": "0->2 lr=0.0002"}, {"key": "another"},
                   {"sources": {"sweep": {"match": "train_flops"}}}):  # fmt: skip
        stamps.append(stamp(sweeps, **change))
    (run.path / "other.txt").write_text("of nothing that is shown")
    assert len({*stamps, stamp(sweeps)}) == len(stamps) == 11 and {*map(len, stamps)} == {16}


def test_a_run_begins_and_ends_around_its_entries(sweeps: Sweeps) -> None:
    _, spec, _ = sweeps.plan()
    run = sweeps.finish(spec)
    times = [entry.time for entry in run.entries()]
    first, last = min(times), max(times)
    for changed, started in ((first - 50, first - 50), (first + 50, first)):
        os.utime(run.path / "spec.yaml", (changed, changed))
        assert view(sweeps, spec).started == round(1000 * started)
    write_json(run.path / "origin.json", {"attempts": [{"started": first - s} for s in (70, 60)]})
    assert view(sweeps, spec).started == round(1000 * (first - 70))
    for changed in (last - 50, last + 50):
        os.utime(run.path / "result.json", (changed, changed))
        assert view(sweeps, spec).ended == round(1000 * max(last, changed))


def view(sweeps: Sweeps, spec: RunSpec, state: RunState = RunState.COMPLETED) -> View:
    """What is shown of a run in that state."""
    plan = sweeps.lab.sweep("placement").plan()
    trial = next(t for t in trials_of("placement", plan) if t.stored.run == signature(spec))
    return Projection(sweeps.lab, plan).view(trial, state)


SOURCE = {"mlflow.source.name": "tread-lab sweep placement", "mlflow.source.type": "LOCAL",
          "mlflow.source.git.commit": "abc1234"}  # fmt: skip


def test_a_view_has_all_that_the_records_say_of_a_trial(sweeps: Sweeps) -> None:
    _, spec, _ = sweeps.complete()
    run = sweeps.lab.run_of(spec)
    run.open_attempt(fingerprint={"code": "abc", "plugin our_tread": "1.4"})
    with run.log() as log:
        log(40, **{"train/overflows": float("inf")})  # beside which MLflow shows no curve
    found, entries = view(sweeps, spec), run.entries()
    assert (found.name, found.status) == ("0->2 s=0.5 seed 0", "FINISHED")
    assert found.params["route_length"] == "3"
    whole = {"code": "abc1234-dirty", "device": "cpu", "mlflow.loggedImages": "True", **SOURCE}
    assert whole.items() <= found.tags.items() and "problem" not in found.tags
    assert (found.born, len(found.logged)) == (round(1000 * entries[0].time), 17)
    assert math.isnan(found.logged[16].value)
    assert found.started <= found.born
    assert found.logged[0] == Number("train/loss", 0.2, 5, found.born)
    last = round(1000 * entries[-1].time)
    assert found.measured["fd:fashion16-v1:1k"] == Number("fd:fashion16-v1:1k", 5.0, 40, last)
    assert found.during == () and found.ended is not None and found.ended >= last


def test_a_view_of_a_failed_run_has_the_start_of_its_reason_and_no_numbers(sweeps: Sweeps) -> None:
    baseline, *_ = sweeps.plan()
    ended_run(sweeps.lab, baseline, "failed", reason=3000 * "x")
    found = view(sweeps, baseline, RunState.FAILED)
    assert (found.status, found.born, found.logged, found.measured) == ("FAILED", 0, {}, {})
    assert found.tags == {
        "cell": "dense", "role": "baseline", "state": "failed", "signature": signature(baseline),
        "reason": 2000 * "x",
        **{k: v for k, v in SOURCE.items() if "git" not in k},
    }  # fmt: skip
    assert "route_start" not in found.params and "" not in found.params.values()


def test_a_run_under_way_has_no_end_no_files_and_no_evaluations(sweeps: Sweeps) -> None:
    _, spec, _ = sweeps.plan()
    run = sweeps.log(spec, 5, 20)
    run.open_attempt(origin={"code": "def5678", "device": "cuda"})
    found = view(sweeps, spec, RunState.RUNNING)
    assert (found.status, found.ended, found.measured, found.during) == ("RUNNING", None, {}, ())
    assert found.files == {"spec.yaml": run.path / "spec.yaml"}
    assert found.tags["attempts"] == "2" and "mlflow.loggedImages" not in found.tags
    assert (found.tags["code"], found.tags["device"]) == ("def5678", "cuda"), "of the last attempt"


def test_the_name_of_a_run_fits_into_every_store(sweeps: Sweeps) -> None:
    sweeps.complete()
    plan = sweeps.lab.sweep("placement").plan()
    long = replace(trials_of("placement", plan)[1], label=300 * "x")
    name = Projection(sweeps.lab, plan).view(long, RunState.COMPLETED).name
    assert len(name) < 250 and name.endswith("x seed 0")


def test_states_are_those_of_the_sweep_and_pending_before_a_spec(sweeps: Sweeps) -> None:
    _, begun, pending = sweeps.plan()
    sweeps.log(begun, 5, 20)
    folder = sweeps.lab.sweep("placement")
    folder.add_judgement(Judgement(signature(begun), 20, 0.5))
    plan = sweeps.lab.sweep("placement").plan()
    projection = Projection(sweeps.lab, plan)
    with sweeps.lab.run_of(pending).lock():
        states = [projection.state(trial) for trial in trials_of("placement", plan)]
    assert states == [RunState.PENDING, RunState.STOPPED, RunState.PENDING]
    shown = view(sweeps, begun, RunState.STOPPED)
    assert shown.tags["reason"] == "others are better"


def test_pictures_of_runs_of_several_lengths_have_one_step(sweeps: Sweeps) -> None:
    sweeps.complete(evaluate=(HELDOUT, SIMILARITY, SAMPLES, replace(SAMPLES, step=20)))
    plan = sweeps.lab.sweep("placement").plan()
    longer = trial({}, train={"steps": 90})  # MLflow shows pictures of one step alone
    projection = Projection(sweeps.lab, replace(plan, trials=(*plan.trials, longer)))
    files = projection.view(trials_of("placement", plan)[0], RunState.COMPLETED).files
    pictures = [place.partition("+timestamp")[0] for place in files if place.startswith("images/")]
    assert {place.partition("~")[2] for place in pictures} == {
        "layer_similarity~at_end+step+90", "samples_1k~at_end+step+90"
    }  # fmt: skip


@pytest.mark.parametrize("slow", [False, True])  # dense, beside other work
def test_a_tag_names_the_times_that_the_page_marks_as_disturbed(slow: bool, sweeps: Sweeps) -> None:
    specs = sweeps.plan()
    for spec, flops, seconds in zip(specs, (1e9, 8e8, 6e8), (2.0 if slow else 1.0, 0.8, 0.6)):
        sweeps.finish(spec, metrics={"cost/train_flops": flops, "throughput/step_seconds": seconds})
    marked = disturbed(trials_frame(sweeps.lab, "placement"), "throughput/step_seconds")
    tags = [view(sweeps, spec).tags.get("disturbed") for spec in specs]
    assert tags == ["throughput/step_seconds" if mark else None for mark in marked]
    assert list(marked) == [slow] * 3
