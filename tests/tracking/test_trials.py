"""Names of runs say what differs, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tracking.conftest import spec_of
from tread_lab.spec import encode, signature
from tread_lab.tracking.trials import cell_name, run_name, trials_of


def trial(cell: dict[str, Any], role: str = "trial", seed: int = 0, **spec: Any) -> dict[str, Any]:
    built = spec_of(None, seed, **spec)
    facts = {"run": signature(built), "role": role, "cell": cell, "seed": seed, "baseline": None}
    return {**facts, "spec": encode(built)}


def labels(*trees: dict[str, Any]) -> list[str]:
    trials = trials_of("s", {"trials": list(trees)})
    return [run_name(found, found.spec()) for found in trials]


def routes(*pairs: tuple[str, float]) -> list[dict[str, Any]]:
    ends = [(route.split("->"), rate) for route, rate in pairs]
    return [{"start": int(a), "end": int(b), "rate": rate} for (a, b), rate in ends]


@pytest.mark.parametrize(
    ("pairs", "name"),
    [
        ([], "dense seed 0"),
        ([("1->4", 0.5)], "1->4 s=0.5 seed 0"),
        ([("0->1", 0.25), ("3->4", 0.25)], "0->1 + 3->4 s=0.25 seed 0"),
        ([("0->1", 0.25), ("3->4", 0.5)], "0->1 s=0.25 + 3->4 s=0.5 seed 0"),
    ],
)
def test_routes_as_the_paper_writes_them(pairs: list[tuple[str, float]], name: str) -> None:
    assert labels(trial({}, routes=routes(*pairs))) == [name]


def test_a_cell_of_rate_zero_keeps_its_place() -> None:
    assert labels(trial({"start": 1, "end": 4, "rate": 0.0})) == ["1->4 s=0 seed 0"]


def test_other_axes_are_named_where_they_differ() -> None:
    fast = {"precision": "bf16"}
    assert labels(trial({"precision": "fp32"}), trial(fast, precision="bf16")) == [
        "dense precision=fp32 seed 0",
        "dense precision=bf16 seed 0",
    ]
    assert labels(trial({"precision": "fp32"})) == ["dense seed 0"]


def test_baselines_of_one_seed_are_told_apart() -> None:
    deep = {"model": {"depth": 12, "width": 384, "heads": 6}}
    names = labels(trial({}, "baseline"), trial({}, "baseline", **deep))
    assert names == ["dense DiT-6x16/2 seed 0", "dense DiT-S/2 seed 0"]


def test_a_baseline_with_a_route_says_so() -> None:
    tree = trial({}, "baseline", routes=routes(("1->4", 0.5)))
    assert labels(tree) == ["baseline 1->4 s=0.5 seed 0"]


def test_execution_never_shows() -> None:
    one, two = trial({}), trial({"x": 1}, execution={"log_every": 7}, seed=1)
    assert labels(one, two) == ["dense seed 0", "dense seed 1"]


def test_the_same_trial_twice_is_one_and_seeds_share_a_cell() -> None:
    plan = {"trials": [trial({}), trial({}), trial({}, seed=1)]}
    found = trials_of("s", plan)
    assert len(found) == 2
    assert len({cell_name(one, one.spec()) for one in found}) == 1
