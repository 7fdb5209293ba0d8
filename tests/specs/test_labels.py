"""One label for a cell: its routes, their rate, and every other axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tread_lab.config.load import load_experiment, load_sweep
from tread_lab.specs import RunSpec, decode, signature
from tread_lab.specs.cell import Trial
from tread_lab.specs.expansion import expand
from tread_lab.specs.labels import (
    cell_label,
    cell_text,
    place_label,
    run_label,
    run_labels,
    trial_label,
    value_text,
    with_baseline_cells,
    without_axis,
)
from tread_lab.specs.sweep import SweepSpec

MODEL = {"depth": 6, "width": 16, "heads": 2}
SHIPPED = sorted(path.stem for path in Path("sweeps").glob("*.yaml"))
DEVICE = {"device": {"precisions": ["fp32", "tf32", "bf16", "fp16"]}}


def trial(cell: dict[str, Any], role: str = "trial", seed: int = 0, **spec: Any) -> Trial:
    built = decode(RunSpec, {"model": MODEL, "seed": seed, **spec})
    return Trial(role, cell, seed, built, signature(built), None)


def planned(**sweep: Any) -> tuple[Trial, ...]:
    tree = decode(SweepSpec, {"experiment": "tiny", **sweep})
    return expand(tree, load_experiment("tiny")).trials


def route(written: str, rate: float) -> dict[str, Any]:
    start, _, end = written.partition("->")
    return {"start": int(start), "end": int(end), "rate": rate}


@pytest.mark.parametrize(
    ("pairs", "label"),
    [
        ([], "dense seed 0"),
        ([("1->4", 0.5)], "1->4 s=0.5 seed 0"),
        ([("0->1", 0.25), ("3->4", 0.25)], "0->1 + 3->4 s=0.25 seed 0"),
        ([("0->1", 0.25), ("3->4", 0.5)], "0->1 s=0.25 + 3->4 s=0.5 seed 0"),
    ],
)
def test_routes_as_the_paper_writes_them(pairs: list[tuple[str, float]], label: str) -> None:
    assert trial_label(trial({}, routes=[route(*pair) for pair in pairs])) == label


def test_a_cell_of_rate_zero_keeps_its_place() -> None:
    assert cell_label(trial({"start": 1, "end": 4, "rate": 0.0})) == "1->4 s=0"
    assert cell_label(trial({"route": "1->4", "rate": 0})) == "1->4 s=0"
    assert value_text(0.9999999) == "0.9999999" != value_text(0.99999999)


def test_every_other_axis_is_told() -> None:
    cell = {"start": 1, "end": 4, "precision": "bf16", "train.steps": 100}
    assert cell_label(trial(cell, routes=["1->4"])) == "1->4 s=0.5 precision=bf16 steps=100"


def test_axes_of_one_short_name_are_told_in_full() -> None:
    cell = {"train.steps": 10, "then.train.steps": 5}
    assert cell_label(trial(cell)) == "dense train.steps=10 then.train.steps=5"


def test_a_baseline_with_a_route_says_so() -> None:
    tree = trial({}, "baseline", routes=[route("1->4", 0.5)])
    assert trial_label(tree) == "baseline 1->4 s=0.5 seed 0"


def test_baselines_are_told_apart_by_what_they_serve() -> None:
    found = run_labels(planned(axes={"precision": ["fp32", "bf16"], "route": ["2->8", "2->6"]}))
    assert sorted(found.values()) == [
        "2->6 s=0.5 precision=bf16 seed 0",
        "2->6 s=0.5 precision=fp32 seed 0",
        "2->8 s=0.5 precision=bf16 seed 0",
        "2->8 s=0.5 precision=fp32 seed 0",
        "dense precision=bf16 seed 0",
        "dense precision=fp32 seed 0",
    ]


def test_a_run_and_its_parent_are_told_apart() -> None:
    then = {"routes": [], "train": {"steps": 10, "warmup": 0}}
    variants = {"finetune": {"short": {"then": then}}}
    found = run_labels(planned(fixed={"routes": ["2->8"]}, variants=variants, baseline=None))
    labels = ["2->8 s=0.5 seed 0", "2->8 s=0.5 then dense finetune=short seed 0"]
    assert sorted(found.values()) == labels


@pytest.mark.parametrize("name", SHIPPED)
def test_no_two_runs_of_a_shipped_sweep_share_a_label(name: str) -> None:
    _, spec, experiment = load_sweep(f"{name}.yaml", [])
    found = expand(spec, experiment, DEVICE, lambda run: run.train.steps)
    labels = run_labels(found.trials)
    assert len(set(labels.values())) == len(labels)


@pytest.mark.parametrize(
    ("axis", "label"),
    [
        ("rate", "2->8 steps=9"),
        ("train.steps", "2->8 s=0.5"),
    ],
)
def test_a_curve_is_called_without_its_axis(axis: str, label: str) -> None:
    assert without_axis("2->8 s=0.5 steps=9", axis) == label


def test_a_single_run_tells_its_bypass_and_loss() -> None:
    sprint = decode(RunSpec, {"model": MODEL, "routes": ["2->3"], "bypass": "sprint"})
    assert run_label(sprint) == f"2->3 s=0.5 {sprint.bypass} seed 0"
    assert run_label(decode(RunSpec, {"model": MODEL})) == "dense seed 0"


def test_a_baseline_has_only_the_values_that_all_its_trials_share() -> None:
    pairs = [("fp32", "identity"), ("fp32", "v1_sum"), ("bf16", "v1_sum"), ("bf16", "identity")]
    cells = [{"route": "2->8", "precision": p, "bypass.re_entry": r} for p, r in pairs]
    found = with_baseline_cells(planned(trials=cells))
    assert [t.cell for t in found[:2]] == [{"precision": "fp32"}, {"precision": "bf16"}]


@pytest.mark.parametrize(
    ("cell", "label"),
    [
        ({"start": 2, "end": 8}, "2->8"),
        ({"start": 2, "end": 8, "rate": 0.5, "precision": "fp32"}, "2->8 s=0.5 precision=fp32"),
        ({"route": "2->8", "rate": 0.25}, "route=2->8 rate=0.25"),
        ({"start": 2}, "start=2"),
    ],
)
def test_a_place_is_called_by_its_axes(cell: dict[str, Any], label: str) -> None:
    assert place_label(cell) == label


def test_a_cell_as_its_file_writes_it() -> None:
    assert cell_text({"route.start": 3, "end": 2}) == "start=3, end=2"
    assert cell_text({}) == "the base run"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.50, "0.5"), (1e-4, "0.0001"), ([1, 2], "[1,2]"), ((1, 2), "[1,2]"), ({"a": 1}, '{"a":1}'),
     (True, "True")],
)  # fmt: skip
def test_values_are_short(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_a_selection_other_than_random_is_told() -> None:
    by_rows = {"start": 1, "end": 4, "rate": 0.5, "selection": "rows"}
    assert cell_label(trial({"selection": "rows"}, routes=[by_rows])) == "1->4 by rows s=0.5"


def test_a_single_run_tells_its_loss_and_its_alignment() -> None:
    tree = {"model": MODEL, "routes": ["2->3"], "loss": "both", "repa": {"block": 1}, "seed": 4}
    label = run_label(decode(RunSpec, tree))
    assert label == "2->3 s=0.5 loss both repa 0.5 at 1 seed 4"


def test_equal_routes_of_parent_and_child_are_told_once() -> None:
    parent = {"model": MODEL, "routes": ["2->3"]}
    child = {**parent, "init_from": {"run": parent}}
    assert run_label(decode(RunSpec, child)) == "2->3 s=0.5 seed 0"


def test_a_stored_trial_has_the_label_of_the_trial_in_memory() -> None:
    routes = [route("0->1", 0.25), route("3->4", 0.5)]
    parent = {"model": MODEL, "routes": [route("1->2", 0.5)]}
    for spec in ({"routes": routes}, {"routes": routes, "init_from": {"run": parent}}, {}):
        made = trial({"precision": "fp32"}, **spec)
        assert trial_label(Trial.stored(made)) == trial_label(made)
    assert trial_label(Trial.stored(trial({}, routes=routes))) == (
        "0->1 s=0.25 + 3->4 s=0.5 seed 0"
    )


def test_every_parent_has_a_label_of_its_own() -> None:
    then = {"then": {"routes": [], "train": {"steps": 10, "warmup": 0}}}
    axes = {"route": ["2->8", "2->6"], "train.lr": [0.001, 0.002]}
    found = run_labels(planned(axes=axes, variants={"f": {"a": then}}, baseline=None))
    assert sorted(found.values())[:4] == [
        "2->6 s=0.5 lr=0.001 seed 0",
        "2->6 s=0.5 lr=0.002 seed 0",
        "2->6 s=0.5 then dense f=a lr=0.001 seed 0",
        "2->6 s=0.5 then dense f=a lr=0.002 seed 0",
    ]
    assert len(found) == 8


def test_a_run_that_goes_back_to_its_grandparents_routes_tells_them_again() -> None:
    routed = {"model": MODEL, "routes": ["2->3"]}
    dense = {"model": MODEL, "init_from": {"run": routed}}
    again = {**routed, "init_from": {"run": dense}}
    assert run_label(decode(RunSpec, dense)) == "2->3 s=0.5 then dense seed 0"
    assert run_label(decode(RunSpec, again)) == "2->3 s=0.5 then dense then 2->3 s=0.5 seed 0"


def test_a_run_that_is_trial_and_parent_has_the_label_of_its_trial() -> None:
    then = {"then": {"routes": [], "train": {"steps": 10, "warmup": 0}}}
    variants = {"f": {"none": {}, "more": then}}
    found = run_labels(planned(fixed={"routes": ["2->8"]}, variants=variants, baseline=None))
    assert sorted(found.values()) == [
        "2->8 s=0.5 f=none seed 0", "2->8 s=0.5 then dense f=more seed 0"
    ]  # fmt: skip


def test_the_place_of_a_route_is_no_value_of_a_baseline() -> None:
    axes = {"route": [{"start": 2, "end": 8}, {"start": 2, "end": 6}], "rate": [0.25, 0.5]}
    baseline, *_ = with_baseline_cells(planned(axes=axes, baseline={"routes": [], "seed": 0}))
    assert baseline.cell == {}
    lengths = [{"route.start": s, "route.end": 8, "train.steps": n} for s, n in ((2, 5), (0, 6))]
    served = with_baseline_cells(planned(trials=lengths, fixed={"train": {"warmup": 0}}))
    assert [t.cell for t in served if t.role == "baseline"] == [
        {"train.steps": 5}, {"train.steps": 6}
    ]  # fmt: skip


def test_baselines_that_no_axis_tells_apart_are_told_apart_by_their_fields() -> None:
    trials = planned(fixed={"train.lr": "=0.01/length"}, axes={"route": ["0->1", "0->3"]})
    labels = [cell_label(t) for t in with_baseline_cells(trials) if t.role == "baseline"]
    assert labels == ["dense lr=0.005", "dense lr=0.0025"]
