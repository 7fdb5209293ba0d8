"""Every metric name of the records has a name in MLflow, and comes back from it."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.records import metric_names
from tread_lab.specs import GuidanceSpec, HeldoutSpec, SamplerSpec, SamplesSpec, SimilaritySpec
from tread_lab.specs.evaluation import decode_evaluations
from tread_lab.tracking.mlflow_names import difference, folder_name, from_mlflow, to_mlflow

NAMES = {
    "fd[fashion16-v1]@1k": "fd:fashion16-v1:1k",
    "fid@10k": "fid:10k",
    "precision[vgg_16.b]@512": "precision:vgg_16.b:512",
    "is@50k": "is:50k",
    "fd[fashion16-v1]@1k guidance 2": "fd:fashion16-v1:1k guidance 2",
    **{
        name: name
        for key, name in vars(metric_names).items()
        if key.isupper() and isinstance(name, str)
    },
}


def sampler(**options: object) -> SamplesSpec:
    return SamplesSpec(count=1000, sampler=SamplerSpec(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_names_go_there_and_back(name: str) -> None:
    assert to_mlflow(name) == NAMES[name]
    assert from_mlflow(to_mlflow(name)) == name


@pytest.mark.parametrize("name", [*NAMES, "odd name!", "é=1", "100%"])
def test_mlflow_accepts_them(name: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    _validate_metric_name(to_mlflow(name))


def test_an_evaluation_is_told_by_what_the_plan_does_not_say() -> None:
    usual = sampler(steps=8)
    guided = sampler(steps=8, guidance=GuidanceSpec(weight=2.0, interval=(0.2, 5.0)))
    planned = [HeldoutSpec(images=64), usual]
    assert difference(usual, planned) == ""
    assert difference(guided, planned) == " guidance 2 guidance.interval 0.2-5"
    assert difference(sampler(steps=9), planned) == " steps 9"
    assert difference(HeldoutSpec(images=32), planned) == " images 32"
    assert difference(SimilaritySpec(), planned) == ""  # not planned: told from the defaults
    assert folder_name(guided, planned) == "samples_1k_guidance_2_guidance.interval_0.2-5"


def test_every_guidance_of_a_sweep_has_its_own_short_name() -> None:
    sparse: dict[str, Any] = {"weight": 1.5, "strong": {"rate": "0->0.6"}, "weak": {"rate": 0.9}}
    both = {**sparse, "weak": {"rate": 0.9, "label": "none", "step": 50}}
    settings: list[Any] = [1, 2, sparse, both, {**sparse, "routes": ["2->8"]}]
    settings += [{"weight": 2, "channels": "first3"}, {"weight": 2, "interval": [0.2, 5]}]
    planned = decode_evaluations(
        [{"samples": {"count": 1000, "sampler": {"guidance": setting}}} for setting in settings]
    )
    assert [difference(spec, planned) for spec in planned] == [
        "",
        " guidance 2",
        " guidance 1.5 by SG 0-0.6/0.9",
        " guidance 1.5 by CFG AG 50 SG 0-0.6/0.9",
        " guidance 1.5 by SG 0-0.6/0.9 guidance.routes 2-8",
        " guidance 2 guidance.channels first3",
        " guidance 2 guidance.interval 0.2-5",
    ]
    names = {to_mlflow(f"fd[fashion16-v1]@1k{difference(spec, planned)}") for spec in planned}
    assert len(names) == len(planned) and max(map(len, names)) < 100
    reverse = {difference(spec, planned[::-1]) for spec in planned}
    assert len(reverse) == len(planned)
