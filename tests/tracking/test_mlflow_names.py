"""Every metric name of the records has a name in MLflow."""

from __future__ import annotations

import pytest

from tread_lab.records import metric_names
from tread_lab.tracking.mlflow_names import to_mlflow

NAMES = {
    "fd[fashion16-v1]@1k": "fd:fashion16-v1:1k",
    "fid@10k": "fid:10k",
    "precision[vgg_16.b]@512": "precision:vgg_16.b:512",
    "is@50k": "is:50k",
    "fd[fashion16-v1]@1k w=2": "fd:fashion16-v1:1k w:2",
    **{
        name: name
        for key, name in vars(metric_names).items()
        if key.isupper() and isinstance(name, str)
    },
}


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_one_in_mlflow(name: str) -> None:
    assert to_mlflow(name) == NAMES[name]


@pytest.mark.parametrize("name", [*NAMES, "odd name!", "é=1", "100%"])
def test_mlflow_accepts_them(name: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    _validate_metric_name(to_mlflow(name))


def test_settings_of_guidance_stay_readable_and_apart() -> None:
    names = {
        "fd[x]@1k w=1.5 SG(0.5/0.9)": "fd:x:1k w:1.5 SG 0.5/0.9",
        "fd[x]@1k w=1.5 CFG+SG(0.5/0.9->0)": "fd:x:1k w:1.5 CFG SG 0.5/0.9-0",
        "fd[x]@1k w=2 interval=[0.3,5.0]": "fd:x:1k w:2 interval:0.3-5.0",
        "cost/sample_flops count=64 w=2": "cost/sample_flops count:64 w:2",
        "gap/heldout:low": "gap/heldout:low",
    }
    assert {name: to_mlflow(name) for name in names} == names
