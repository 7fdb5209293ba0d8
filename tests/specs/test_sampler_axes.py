"""`sampler_axes` multiplies the evaluations of samples, and no run."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.specs import SamplesSpec, UserError, decode
from tread_lab.specs.expansion import Expansion, expand
from tread_lab.specs.sweep import Experiment, SweepSpec

RUN = {"model": {"depth": 12, "width": 8, "heads": 1}}
SAMPLER = {"solver": "euler", "steps": 4, "guidance": 3}


def expanded(sampler_axes: Any, **changes: Any) -> Expansion:
    tree = {
        "experiment": "tiny",
        "axes": {"route": ["2->8", "2->6"]},
        "evaluate": ["heldout_loss", "fd@1k", {"samples": {"count": 64}}],
        "sampler_axes": sampler_axes,
    }
    sweep = decode(SweepSpec, {**tree, **changes})
    return expand(sweep, Experiment(name="tiny", run=RUN, sampler=SAMPLER))


def samples(found: Expansion) -> list[SamplesSpec]:
    return [spec for spec in found.evaluations if isinstance(spec, SamplesSpec)]


def test_every_samples_evaluation_is_made_with_every_setting() -> None:
    plain = expanded({})
    found = expanded({"guidance.weight": [1, 2], "steps": "4..6 step 2"})
    settings = {(s.count, s.sampler.guidance.weight, s.sampler.steps) for s in samples(found)}
    assert settings == {(c, w, n) for c in (1000, 64) for w in (1, 2) for n in (4, 6)}
    assert len(found.evaluations) == 1 + 8 and len(plain.evaluations) == 1 + 2
    assert found.trials == plain.trials
    assert {s.sampler.solver for s in samples(found)} == {"euler"}


def test_a_list_of_settings_and_a_list_of_grids() -> None:
    sparse = {"weight": 1.5, "strong": {"rate": 0.5}, "weak": {"rate": 0.9}}
    by_setting = expanded({"guidance": [1, 2, sparse]})
    methods = [s.sampler.guidance.method for s in samples(by_setting) if s.count == 64]
    assert methods == ["", "CFG", "SG(0.5/0.9)"]
    grids = expanded(
        [
            {"guidance.weight": [1, 2]},
            {"guidance": {"weight": [1, 1.5], "weak.rate": [0.7, 0.9]}},
        ]
    )
    methods = [s.sampler.guidance.method for s in samples(grids) if s.count == 64]
    assert methods == ["", "CFG", "SG(0/0.7)", "SG(0/0.9)"]  # weight 1 is one setting, made once


def test_the_axis_wins_over_the_evaluations_own_sampler() -> None:
    own = {"samples": {"count": 64, "sampler": {"guidance": 5, "steps": 9}}}
    found = samples(expanded({"guidance.weight": [1, 2]}, evaluate=[own]))
    assert [(s.sampler.guidance.weight, s.sampler.steps) for s in found] == [(1, 9), (2, 9)]


def test_shorthands_are_opened_where_an_axis_goes_deeper() -> None:
    own = {"samples": {"sampler": {"guidance": {"weight": 2, "weak": {"rate": 0.4}}}}}
    (found,) = samples(expanded({"guidance.weak.rate.last": [0.1]}, evaluate=[own]))
    assert str(found.sampler.guidance.weak.rate) == "0.4->0.1"


@pytest.mark.parametrize(
    ("axes", "changes", "said"),
    [
        ({"guidnce.weight": [1]}, {}, "unknown key 'guidnce', did you mean 'guidance'?"),
        ({"guidance.weight": []}, {}, "sampler_axes.guidance.weight: has no values"),
        (["steps"], {}, "sampler_axes: expected a mapping of axes, got 'steps'"),
        ({"steps": [4]}, {"evaluate": ["heldout_loss"]}, "sampler_axes: there is no evaluation"),
    ],
)
def test_mistakes_are_one_line(axes: Any, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=r"^[^\n]*$") as error:
        expanded(axes, **changes)
    assert said in str(error.value)


def test_where_may_ask_what_the_device_can_do() -> None:
    tree = {
        "experiment": "tiny",
        "axes": {"precision": ["fp32", "tf32", "bf16"]},
        "where": "precision in device.precisions",
    }
    sweep, base = decode(SweepSpec, tree), Experiment(name="tiny", run=RUN)
    found = expand(sweep, base, {"device": {"precisions": ["fp32", "bf16"]}})
    assert [t.spec.precision for t in found.trials if t.role == "trial"] == ["fp32", "bf16"]
    (hole,) = found.excluded
    assert (hole.reason, hole.count) == ("where: precision in device.precisions", 1)
    assert hole.examples == ({"precision": "tf32"},)
