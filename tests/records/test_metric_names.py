"""Every metric says whether it is quality, cost or neither, under all the names it goes by."""

from __future__ import annotations

import pytest

from tread_lab.records import metric_names
from tread_lab.specs import RunSpec, decode
from tread_lab.specs.evaluation import METRICS

NATURES = {
    "heldout/loss": ("quality", 1),
    "gap/heldout": ("quality", 1),
    "gap/train": ("neither", 0),
    "gap/route": ("neither", 0),
    "heldout/loss_routed": ("neither", 0),
    "similarity/adjacent": ("neither", 0),
    "fid@10k": ("quality", 1),
    "delta/fd[fashion16-v1]@1k": ("quality", 1),
    "fd[fashion16-v1]@1k w=2": ("quality", 1),
    "fd:fashion16-v1:1k": ("quality", 1),
    "precision[fashion16-v1]@1k": ("quality", -1),
    "is:50k": ("quality", -1),
    "cost/train_flops": ("cost", 1),
    "cost/sample_flops w=2": ("cost", 1),
    "cost/mfu": ("cost", -1),
    "throughput/images_per_s": ("cost", -1),
    "sharpness@1k": ("neither", 0),
    "precise@1k": ("neither", 0),
}


@pytest.mark.parametrize("name", NATURES)
def test_a_column_has_the_nature_of_its_metric(name: str) -> None:
    kind = metric_names.metric_kind(name)
    assert (kind.nature, kind.sign) == NATURES[name]


def test_every_measure_of_samples_has_an_entry() -> None:
    assert set(METRICS) <= metric_names.METRIC_KINDS.keys()


def test_every_name_of_a_metric_has_an_entry() -> None:
    declared = {
        value
        for name, value in vars(metric_names).items()
        if name.isupper() and isinstance(value, str)
    }
    assert declared <= metric_names.METRIC_KINDS.keys()


def test_the_length_of_routes_is_that_of_all_together() -> None:
    run = {"model": {"depth": 12, "width": 16, "heads": 2}, "routes": ["0->1", "4->8"]}
    found = metric_names.parameters(decode(RunSpec, run))
    assert (found["route"], found["route_length"]) == ("0->1 + 4->8", 7)
