"""A plan names cells, holes, FLOPs, time and missing files, and every kind of grid expands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tasks.conftest import FIXED, INLINE, PROBE, SMALL, SWEPT, Answer, Command, trials
from tread_lab.records.lab import Lab
from tread_lab.results.answer import answer

Sweep = Callable[..., Answer]


@pytest.fixture
def plan(run_command: Command) -> Callable[..., Any]:
    """Write a sweep file and return its plan as scripts read it."""

    def planned(text: str, *words: str) -> Any:
        Path("planned.yaml").write_text(text)
        return run_command("sweep planned.yaml --plan --json --device cpu", *words).json

    return planned


def routes(plan: Any) -> list[list[tuple[int, int, float]]]:
    """The routes of every trial."""
    return [
        [(route["start"], route["end"], route["rate"]) for route in trial["spec"]["routes"]]
        for trial in plan["trials"]
        if trial["role"] == "trial"
    ]


@pytest.mark.task(17)
def test_a_plan_has_cells_holes_flops_time_and_disk(run_command: Command, lab: Lab) -> None:
    Path("small.yaml").write_text(SWEPT)
    shown = run_command("sweep small.yaml --plan --device cpu")
    assert shown.code == 0, shown.err
    for text in (
        "dense seed 0",
        "1->2 s=0.5 seed 1",
        "4 cells not planned",
        "no time is predicted",
    ):
        assert text in shown.out
    found = run_command("sweep small.yaml --plan --json --device cpu").json
    assert (found["counts"]["runs"], found["counts"]["holes"]) == (10, 4)
    prices = found["runs"].values()
    assert found["cost"]["train_flops"] == sum(run["train_flops"] for run in prices) > 0
    assert found["cost"]["disk_bytes"] > 0
    assert not lab.root.exists()


@pytest.mark.task(17)
def test_missing_weights_are_named_before_a_run_starts(
    run_command: Command, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TREAD_LAB_INCEPTION", raising=False)
    Path("small.yaml").write_text(SWEPT.replace("[fd]", "[fid]"))
    assert "TREAD_LAB_INCEPTION" in run_command("sweep small.yaml", *INLINE).mistake
    assert not lab.root.exists()


@pytest.mark.task(17)
def test_a_plan_lists_missing_weights(
    run_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TREAD_LAB_INCEPTION", raising=False)
    Path("small.yaml").write_text(SWEPT.replace("[fd]", "[fid]"))
    shown = run_command("sweep small.yaml --plan --device cpu")
    assert "TREAD_LAB_INCEPTION" in shown.out + shown.err


@pytest.mark.task(18)
def test_axes_are_typed_as_values_with_commas(run_command: Command) -> None:
    small = SMALL.replace(" train.lr=0.01", "")
    shown = run_command(f"sweep {small} --plan --json", "route=2->3,1->3", "train.lr=1e-3,3e-3")
    assert shown.code == 0 and shown.json["counts"]["trials"] == 4


@pytest.mark.task(18)
def test_a_sweep_is_typed_without_a_file(run_command: Command) -> None:
    axes = 'axes.route=["2->3","1->3"]', "axes.train.lr=[1e-3,3e-3]"
    small = SMALL.replace(" train.lr=0.01", "")
    found = run_command(f"sweep {small} --plan --json", *axes).json
    assert found["counts"]["trials"] == 4 and found["counts"]["baselines"] == 2
    cells = {
        (route, trial["spec"]["train"]["lr"])
        for trial, ((*route, _),) in zip(found["trials"][2:], routes(found))
        for route in [tuple(route)]
    }
    assert cells == {(place, lr) for place in [(2, 3), (1, 3)] for lr in [1e-3, 3e-3]}


GRIDS: dict[str, tuple[str, list[list[tuple[int, int, float]]]]] = {
    "grid": (
        "axes: {route: {start: [0, 1], end: 2}, rate: [0.25, 0.5]}",
        [[(s, 2, r)] for s in (0, 1) for r in (0.25, 0.5)],
    ),
    "where": (
        "axes: {route: {start: 0..2, end: 0..2}, rate: [0.5]}\nwhere: length == 2",
        [[(0, 1, 0.5)], [(1, 2, 0.5)]],
    ),
    "zip": (
        "axes: {zip: {route: [0->1, 1->2], rate: [0.25, 0.75]}}",
        [[(0, 1, 0.25)], [(1, 2, 0.75)]],
    ),
    "listed trials": (
        "trials: [{route: 0->1, rate: 0.9}, {routes: [0->0, 2->2]}]",
        [[(0, 1, 0.9)], [(0, 0, 0.5), (2, 2, 0.5)]],
    ),
    "variants": (
        "variants: {method: {one: {routes: [1->B-2]}, two: {routes: [0->0, 2->2]}}}",
        [[(1, 2, 0.5)], [(0, 0, 0.5), (2, 2, 0.5)]],
    ),
}


@pytest.mark.task(19)
@pytest.mark.parametrize("kind", GRIDS)
def test_every_kind_of_grid_expands_to_its_cells(kind: str, plan: Callable[..., Any]) -> None:
    text, expected = GRIDS[kind]
    found = plan(f"{FIXED}{text}\n{PROBE}")

    def key(cell: list[tuple[int, int, Any]]) -> list[tuple[int, int, float]]:
        return [(s, e, r["first"] if isinstance(r, dict) else r) for s, e, r in cell]

    assert sorted(map(key, routes(found))) == sorted(expected)
    assert found["counts"]["baselines"] == 1


@pytest.mark.task(20)
def test_precision_and_rate_are_compared_within_each_precision(run_sweep: Sweep, lab: Lab) -> None:
    axes = "axes: {precision: [fp32, bf16], rate: [0.25, 0.75]}\nseeds: [0, 1]\n"
    run_sweep(f"{FIXED}  route: 1->2\n{axes}{PROBE}")
    frame = trials(lab)
    assert len(frame) == 12 and (frame["state"] == "completed").all()
    own = frame[frame["role"] == "trial"]
    dense = frame[frame["role"] == "baseline"].set_index("run")
    assert sorted(dense["precision"]) == ["bf16", "bf16", "fp32", "fp32"]
    beside = dense.loc[own["baseline"]]
    assert beside["precision"].tolist() == own["precision"].tolist()
    assert beside["seed"].tolist() == own["seed"].tolist()
    difference = own["heldout/loss"].to_numpy() - beside["heldout/loss"].to_numpy()
    assert own["gap/heldout"].to_numpy() == pytest.approx(difference, abs=1e-6)
    assert answer(lab, frame).result.startswith("By precision, ")
