"""The trials of a plan, each once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.tracking.conftest import spec_of
from tread_lab.records.plan import StoredPlan, StoredTrial
from tread_lab.specs import encode, signature
from tread_lab.tracking.trial_names import trials_of


def trial(cell: dict[str, Any], role: str = "trial", seed: int = 0, **spec: Any) -> StoredTrial:
    built = spec_of(None, seed, **spec)
    return StoredTrial(role, cell, seed, encode(built), signature(built), None)


def test_the_same_trial_twice_is_one_and_seeds_share_a_cell() -> None:
    plan = StoredPlan("s", "", "", (trial({}), trial({}), trial({}, seed=1)), (), {})
    found = trials_of("s", plan)
    assert len(found) == 2
    assert [one.label for one in found] == ["dense", "dense"]


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
