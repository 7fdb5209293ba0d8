"""Evaluations have one label each; several of one kind are told apart by what differs."""

from __future__ import annotations

import pytest

from tread_lab.specs import (
    EvaluationSpec,
    GuidanceSpec,
    HeldoutSpec,
    SamplerSpec,
    SamplesSpec,
    encode,
)
from tread_lab.specs.evaluation_labels import evaluation_label, setting_names, suffixes


def guided(weight: float, steps: int = 20) -> SamplesSpec:
    return SamplesSpec(sampler=SamplerSpec(steps=steps, guidance=GuidanceSpec(weight=weight)))


@pytest.mark.parametrize(
    ("spec", "label"),
    [
        (HeldoutSpec(), "heldout_loss"),
        (SamplesSpec(metrics=("fd", "kid"), count=1000), "fd+kid@1k"),
        (SamplesSpec(metrics=(), count=64), "samples@64"),
    ],
)
def test_a_label_says_kind_metrics_and_count(spec: EvaluationSpec, label: str) -> None:
    assert evaluation_label(encode(spec)) == label


def test_settings_name_what_differs_alone() -> None:
    assert setting_names([guided(2.0), guided(3.0)]) == ["w=2", "w=3"]
    assert setting_names([guided(2.0, 20), guided(2.0, 50)]) == ["steps=20", "steps=50"]
    assert setting_names([guided(2.0)]) == [""]


def test_an_unplanned_evaluation_renames_no_planned_one() -> None:
    trees = {"a": encode(guided(2.0)), "b": encode(guided(3.0)), "c": encode(guided(4.0, 50))}
    names = {"a": " w=2", "b": " w=3", "c": " steps=50 w=4"}
    assert suffixes(trees, ["a", "b"]) == names
