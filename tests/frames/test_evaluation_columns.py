"""Columns of one metric under several guidances are told apart, shortly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import FD, Synthetic, tiny_spec, write_sweep
from tread_lab.frames import own_metrics, trials_frame
from tread_lab.records import metric_names
from tread_lab.records.durable import write_json
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs import SamplerSpec, SamplesSpec, encode, signature
from tread_lab.specs.evaluation_text import decode_evaluations

SG = {"weight": 1.5, "strong": {"rate": 0.5}, "weak": {"rate": 0.9}}


def columns(root: Path, *guidances: Any, unplanned: Any = ()) -> dict[str, float]:
    """A finished run, measured once per guidance; values are their numbers."""
    lab, spec = Lab(root), tiny_spec(None)
    items = [
        {"samples": {"metrics": ["fd"], "count": 1000, "sampler": {"guidance": g}}}
        for g in guidances
    ]
    evaluations = decode_evaluations(items)
    assert len(evaluations) == len(guidances)
    trial = {"run": signature(spec), "role": "baseline", "cell": {}, "seed": 0, "baseline": None}
    plan = {
        "format": 1,
        "name": "g",
        "question": "",
        "sweep": {},
        "experiment": "tiny",
        "holes": [],
    }
    plan |= {"evaluate": encode(evaluations), "trials": [{**trial, "spec": encode(spec)}]}
    write_json(lab.sweep("g").plan_path, plan)
    run = lab.run_of(spec)
    for number, evaluation in enumerate((*evaluations, *decode_evaluations(unplanned))):
        facts = {metric_names.SAMPLE_FLOPS: 1e9 * (number + 1)}
        run.evaluation(evaluation).write(evaluation, {FD: float(number)}, **facts)
    run.finish(RunState.COMPLETED, step=400, metrics={})
    (row,) = trials_frame(lab, "g").to_dict("records")
    return {c: v for c, v in row.items() if c.startswith((FD, metric_names.SAMPLE_FLOPS))}


def test_methods_and_weights_name_themselves(tmp_path: Path) -> None:
    settings = (1, 2, SG, {**SG, "weak": {"rate": "0.9->0", "label": "none"}})
    found = columns(tmp_path, *settings)
    suffixes = ["", " w=2", " w=1.5 SG(0.5/0.9)", " w=1.5 CFG+SG(0.5/0.9->0)"]
    assert found == {
        **{f"{FD}{suffix}": number for number, suffix in enumerate(suffixes)},
        **{f"cost/sample_flops{s}": 1e9 * (n + 1) for n, s in enumerate(suffixes)},
    }


@pytest.mark.parametrize(
    ("guidance", "suffix"),
    [
        (1, ""),
        (3, " w=3"),
        ({"weight": 1, "strong": {"rate": 0.5}}, " routed(0.5)"),
        ({"weight": 2, "weak": {"step": 5}}, " w=2 AG(5)"),
        ({"weight": 2, "interval": [0.3, 5]}, " w=2 interval=[0.3,5.0]"),
        ({"weight": 2, "channels": "first3"}, " w=2 channels=first3"),
        ({**SG, "routes": ["2->8"]}, " w=1.5 SG(0.5/0.9) routes=2->8"),
    ],
)
def test_a_column_says_its_guidance_whatever_else_was_planned_or_measured(
    guidance: Any, suffix: str, tmp_path: Path
) -> None:
    other = {"samples": {"metrics": ["fd"], "count": 1000, "sampler": {"guidance": 2}}}
    alone = columns(tmp_path / "a", guidance)
    assert list(alone) == [FD + suffix, metric_names.SAMPLE_FLOPS + suffix]
    assert alone.items() <= columns(tmp_path / "b", guidance, 2).items()
    assert alone.items() <= columns(tmp_path / "c", guidance, unplanned=[other]).items()


def test_what_another_sweep_has_measured_of_few_runs_is_none_of_this_sweeps_metrics(
    tmp_path: Path,
) -> None:
    routes = [(2, 8), (0, 4)]
    lab = write_sweep(tmp_path, Synthetic(routes=routes, seeds=(0,)))
    before = own_metrics(trials_frame(lab, "placement"))
    other = SamplesSpec(metrics=("fd",), count=500, sampler=SamplerSpec())
    for number, route in enumerate([None, *routes]):
        folder = lab.run_of(tiny_spec(route)).evaluation(other)
        folder.write(other, {"fd[fashion16-v1]@500": 9.0})
        found = own_metrics(trials_frame(lab, "placement"))
        assert (found == before) == (number < 2)
