"""Shorthands of a command: `--route` replaces the routes, `--rate` the rate of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tread_lab.commands.resolve import run_spec, with_whole_parents
from tread_lab.config.load import load_experiment
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError, encode
from tread_lab.specs.sweep import Experiment


@pytest.mark.parametrize(
    ("routes", "rate", "found"),
    [
        (None, None, [(2, 8, 0.5)]),
        (["1->B-4"], None, [(1, 8, 0.5)]),
        (None, 0.25, [(2, 8, 0.25)]),
        (["1->2", "5->6"], 0.75, [(1, 2, 0.75), (5, 6, 0.75)]),
    ],
)
def test_routes_and_their_rates_are_replaced(
    routes: list[str] | None, rate: float | None, found: list[tuple[int, int, float]]
) -> None:
    experiment = load_experiment("tiny", ["routes=['2->8']"])
    spec = run_spec(experiment, routes, rate)
    assert [(r.start, r.end, r.rate) for r in spec.routes] == found


def test_a_rate_of_no_route_is_refused_and_a_dense_run_needs_none() -> None:
    dense = load_experiment("tiny", ["routes=[]"])
    assert run_spec(dense, None, None).routes == () == run_spec(dense, [], None).routes
    with pytest.raises(UserError, match=r"^--rate: there is no route; add --route"):
        run_spec(dense, None, 0.5)


def test_a_rate_is_of_the_stage_before_a_finetune_and_the_finetune_stays() -> None:
    then: Any = {"routes": [], "train": {"steps": 10, "warmup": 0}}
    loaded = load_experiment("tiny", ["routes=['2->8']"])
    staged = Experiment(name="tiny", run={**loaded.run, "then": then})
    spec = run_spec(staged, None, 0.25)
    assert spec.routes == () and spec.train.steps == 10
    assert [route.rate for route in spec.ancestors[0].routes] == [0.25]


def test_a_parent_is_the_run_that_its_signature_names(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    parent = run_spec(load_experiment("tiny", []), None, None)
    folder = lab.run_of(parent)
    folder.create(parent)
    child = load_experiment("tiny", [f"init_from={{run: {folder.name}}}", "routes=[]"])
    found = with_whole_parents(child, lab)
    assert isinstance(found, Experiment)
    assert found.run["init_from"]["run"] == encode(parent)
