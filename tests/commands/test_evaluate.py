"""The evaluate command measures with the sampler that the sweep's runs were measured with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sweep.search.test_budget import planned
from tread_lab.commands.evaluate import _decoded, _of_sweep
from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec, UserError
from tread_lab.specs.evaluation import SamplesSpec, decode_evaluations
from tread_lab.sweep.plan.storage import store_plan


def steps(lab: Lab) -> set[int]:
    measurements = _of_sweep(lab, "budgeted", ["fd@1k"], None)
    specs = [spec for _, specs in measurements for spec in specs]
    assert len(measurements) == len(specs) == 7
    return {spec.sampler.steps for spec in specs if isinstance(spec, SamplesSpec)}


def test_the_recorded_sampler_is_used_where_the_plan_has_none(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    plan = planned(tiny)
    store_plan(lab.sweep("budgeted"), plan)
    assert 7 not in steps(lab)
    (spec,) = decode_evaluations(["fd@2k"], {"steps": 7})
    lab.run(plan.tasks[0].run).evaluation(spec).write(spec, {"fd": 1.0})
    assert steps(lab) == {7}


def test_the_sampler_of_the_plan_comes_first(lab: Lab, tiny: Callable[..., RunSpec]) -> None:
    samples = {"metrics": ["fd"], "count": 1000, "sampler": {"steps": 9}}
    plan = planned(tiny, evaluate=[{"samples": samples}])
    store_plan(lab.sweep("budgeted"), plan)
    (spec,) = decode_evaluations(["fd@2k"], {"steps": 7})
    lab.run(plan.tasks[0].run).evaluation(spec).write(spec, {"fd": 1.0})
    assert steps(lab) == {9}


def test_fields_of_the_sampler_stand_beside_what_is_measured() -> None:
    recorded = {"steps": 7, "guidance": {"weight": 3.0}}
    (spec,) = _decoded(["fd@1k", "sampler.steps=9", "kid@1k"], recorded, None, None)
    assert isinstance(spec, SamplesSpec) and spec.metrics == ("fd", "kid")
    assert (spec.sampler.steps, spec.sampler.guidance.weight) == (9, 3.0)
    (spec,) = _decoded(
        ["fd@1k", "sampler.guidance={weight: 2, channels: first3}"], recorded, None, None
    )
    assert isinstance(spec, SamplesSpec) and spec.sampler.guidance.weight == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fd@1k", "steps=9"], "'steps=9': fields of the sampler alone can be set, e.g."),
        (["sampler.steps=9"], "name what to measure with this sampler: fd@1k sampler.steps=40"),
        (["fd@1k", "sampler.step=9"], "unknown key 'step', did you mean 'steps'"),
        (["fd@1k", "sampler.steps=[9"], r"sampler.steps=\[9: the value is not valid YAML"),
    ],
)
def test_a_wrong_field_of_the_sampler_is_one_line(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        _decoded(words, {}, None, None)
    assert "\n" not in str(refusal.value)
