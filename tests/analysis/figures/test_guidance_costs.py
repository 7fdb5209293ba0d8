"""The figure of guidance shows every setting at its cost, told apart by method and cell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.synthetic import FD, tiny_spec
from tread_lab.analysis.figures.guidance_costs import (
    by_cell,
    caption,
    draw_guidance_costs,
    guidance_costs,
)
from tread_lab.analysis.figures.style import figure
from tread_lab.frames import trials_frame
from tread_lab.records import metric_names
from tread_lab.records.durable import write_json
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs import encode, signature
from tread_lab.specs.evaluation_text import decode_evaluations

SETTINGS = (1, 1.5, 2, {"weight": 2, "strong": {"rate": 0.5}, "weak": {"rate": 0.9}})


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A dense and a routed run of two seeds, FD and cost known for every guidance."""
    found = Lab(tmp_path_factory.mktemp("guidance"))
    items = [
        {"samples": {"metrics": ["fd"], "count": 1000, "sampler": {"guidance": setting}}}
        for setting in SETTINGS
    ]
    evaluations, trials = decode_evaluations(items), []
    for seed in (0, 1):
        for route in (None, (2, 8)):
            spec = tiny_spec(route, seed=seed)
            role, cell = ("trial", {"start": 2, "end": 8}) if route else ("baseline", {})
            trial = {"run": signature(spec), "role": role, "cell": cell, "seed": seed}
            trials.append({**trial, "baseline": None, "spec": encode(spec)})
            for number, evaluation in enumerate(evaluations):
                metrics, cost = (
                    {FD: 10.0 * number + seed},
                    {metric_names.SAMPLE_FLOPS: 1e9 * number},
                )
                found.run_of(spec).evaluation(evaluation).write(evaluation, metrics, **cost)
            found.run_of(spec).finish(RunState.COMPLETED, step=400, metrics={})
    plan = {"format": 1, "name": "g", "evaluate": encode(evaluations), "trials": trials}
    write_json(found.sweep("g").plan_path, plan)
    return found


def test_every_setting_is_a_point_at_its_cost(lab: Lab) -> None:
    cells = by_cell(guidance_costs(trials_frame(lab, "g"), FD))
    assert list(cells) == ["dense", "2->8 s=0.5"]
    dense = cells["dense"]
    assert [p.method for p in dense] == ["none", "CFG", "CFG", "SG"]
    assert [p.weight for p in dense] == [1, 1.5, 2, 2]
    assert [p.flops for p in dense] == [0, 1e9, 2e9, 3e9]
    assert [p.value for p in dense] == [0.5, 10.5, 20.5, 30.5]  # the mean over two seeds


def test_a_cell_without_all_its_seeds_has_no_points(lab: Lab) -> None:
    frame = trials_frame(lab, "g")
    frame.loc[3, "state"] = RunState.FAILED  # of the routed cell
    assert list(by_cell(guidance_costs(frame, FD))) == ["dense"]


@pytest.mark.parametrize(("metric", "best"), [(FD, 0.5), ("is@10k", 0.52)])
def test_the_best_has_its_weight_where_points_crowd(lab: Lab, metric: str, best: float) -> None:
    found = guidance_costs(trials_frame(lab, "g"), FD)
    values = (0.52, 0.51, 0.5, 10.0)
    crowd = [replace(p, flops=1e9, value=v) for p, v in zip(found[:4], values)]
    _, axes = figure(columns=2)
    draw_guidance_costs([*crowd, *found[4:]], metric, axes)
    assert (1.0, best) in [text.xy for text in axes[0].texts]


def test_the_caption_names_the_best_setting_of_each_cell(lab: Lab) -> None:
    points = [
        replace(point, value=5.0 if point.weight == 1.5 else 1.0)
        for point in guidance_costs(trials_frame(lab, "g"), FD)
    ]
    more, less = caption(points, "is@10k"), caption(points, FD)
    assert "1.5" in more and "1.5" not in less, (more, less)


def test_a_metric_without_settings_has_no_points(paper_lab: Lab) -> None:
    assert guidance_costs(trials_frame(paper_lab, "placement"), FD) == []
