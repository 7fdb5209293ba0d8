"""Claims about the shared parts of trials: what is decoded once is what `decode` gives."""

from __future__ import annotations

from tread_lab.specs import RunSpec, decode, signature
from tread_lab.specs.cell import CellNames
from tread_lab.specs.trials import SharedParts, Trials

MODEL = {"depth": 2, "width": 32, "heads": 2}


def test_equal_trees_of_different_fields_are_different_parts() -> None:
    tree = {"model": MODEL, "data": {}, "process": {}, "train": {}, "execution": {}}
    assert SharedParts().run(tree) == decode(RunSpec, tree)


def test_a_part_of_the_base_has_a_key_without_being_read() -> None:
    base = {"model": MODEL, "seed": 0}
    parts = SharedParts(base)
    assert parts.key({**base, "seed": 1}) == parts.key({**base, "seed": 1})
    assert parts.key({**base, "seed": 1}) != parts.key({**base, "seed": 2})
    assert parts.is_base("model", MODEL) and not parts.is_base("model", dict(MODEL))


def test_a_field_that_the_base_lacks_is_not_the_bases() -> None:
    parts = SharedParts({"seed": None})
    assert not parts.is_base("repa", None) and parts.is_base("seed", None)
    assert parts.key({"repa": None}) == (("repa", "None"),)


def test_parts_that_begin_alike_are_told_apart() -> None:
    parts = SharedParts()
    runs = [parts.run({"model": {**MODEL, "patch": p}, "seed": p}) for p in (1, 2)]
    assert [run.model.patch for run in runs] == [1, 2]
    assert parts.run({"model": {**MODEL, "patch": 1}}).model is runs[0].model


def test_a_baseline_has_the_seed_of_its_trial_and_no_cell() -> None:
    base = {"model": MODEL, "routes": ["0->1"], "train": {"batch": "=B * 4"}}
    made = Trials(base, {"routes": [], "train.warmup": "=train.batch"})
    setting = made.setting(CellNames(base, {"train.steps": "=B + 1"}), {"train.steps": "=B + 1"})
    assert setting.cell == {"train.steps": 3} and setting.tree["train"] == {"batch": 8}
    baseline, trial = made.pair(setting, 5)
    assert baseline is not None
    assert (baseline.role, baseline.cell, baseline.seed, baseline.baseline) == (
        "baseline", {}, 5, None
    )  # fmt: skip
    assert (trial.role, trial.cell, trial.seed) == ("trial", {"train.steps": 3}, 5)
    assert trial.baseline == baseline.run == signature(baseline.spec)
    assert (baseline.spec.seed, trial.spec.seed, trial.run) == (5, 5, signature(trial.spec))
    assert (baseline.spec.train.warmup, trial.spec.train.warmup, baseline.spec.routes) == (8, 0, ())
    alone, only = Trials(base, None).pair(setting, 0)
    assert alone is None and only.baseline is None
