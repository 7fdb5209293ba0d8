"""Every metric says whether it is quality, cost or neither, under all the names it goes by."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.config import RunSpec, decode
from tread_lab.config.evaluation import METRICS
from tread_lab.records import metric_names

NATURES = {  # of metrics under the other names that they go by
    "fid@10k": ("quality", 1),
    "delta/fd[fashion16-v1]@1k": ("quality", 1),
    "precision[fashion16-v1]@1k": ("quality", -1),
    "is:50k": ("quality", -1),
    "cost/sample_flops w=2": ("cost", 1),
    "FID@10k": ("quality", 1),
    "delta/IS@10k w=2": ("quality", -1),
    "sharpness@1k": ("neither", 0),
    "precise@1k": ("neither", 0),
}


def test_every_metric_constant_has_a_kind() -> None:
    kinds = metric_names.METRIC_KINDS
    named = {x for name, x in vars(metric_names).items() if name.isupper() and isinstance(x, str)}
    assert {*METRICS, *named} - kinds.keys() == {metric_names.MINUS, metric_names.DELTA}


@pytest.mark.parametrize("name", NATURES)
def test_a_column_has_the_nature_of_its_metric(name: str) -> None:
    kind = metric_names.metric_kind(name)
    assert (kind.nature, kind.sign) == NATURES[name]
    assert metric_names.lower_is_better(name) == (kind.sign >= 0)


def test_of_several_routes_the_first_is_told_and_the_length_of_all() -> None:
    routes = [{"start": 0, "end": 1, "rate": 0.25}, {"start": 4, "end": 8, "rate": 0.5}]
    spec = decode(RunSpec, {"model": {"depth": 12, "width": 16, "heads": 2}, "routes": routes})
    found = metric_names.parameters(spec)
    assert (found["start"], found["end"], found["rate"], found["length"]) == (0, 1, 0.25, 7)
    same = {"model": {"depth": 12, "width": 16, "heads": 2}, "routes": ["0->1", "4->8"]}
    assert metric_names.parameters(decode(RunSpec, same))["route"] == "0->1 + 4->8"


@pytest.mark.parametrize(
    ("metric", "extractor", "heldout", "name"),
    [
        ("fid", "inception", False, "fid@10k"),
        ("fid", "inception", True, "fid[heldout]@10k"),
        ("is", "inception", True, "is@10k"),
        ("fd", "fashion16-v1", True, "fd[fashion16-v1]@10k"),
        ("fd_dinov2", "dinov2-large", False, "fd_dinov2@10k"),
        ("fd_dinov2", "dinov2-large", True, "fd_dinov2[heldout]@10k"),
        ("kid", "dinov2", True, "kid[dinov2,heldout]@10k"),
        ("kid", "dinov2", False, "kid[dinov2]@10k"),
    ],
)
def test_what_departs_from_the_published_metric_is_in_its_name(
    metric: str, extractor: str, heldout: bool, name: str
) -> None:
    assert metric_names.sample_metric(metric, extractor, 10_000, heldout=heldout) == name


def test_parameters_are_flat_and_what_is_usual_is_empty() -> None:
    model = {"depth": 12, "width": 16, "heads": 2}
    dense = decode(RunSpec, {"model": model, "precision": "fp32", "seed": 3})
    assert metric_names.parameters(dense) == {
        "model": "DiT-12x16/2", "route": "dense", "start": "", "end": "",
        "length": 0, "rate": 0.0, "bypass": "", "loss": "", "starts_from": "",
        "process": "edm", "precision": "fp32", "fp32_block": "off", "seed": 3,
    }  # fmt: skip
    routed = {"model": model, "routes": [{"start": 2, "end": 8, "rate": 0.25}]}
    more = {"loss": "both", "repa": {"block": 1}, "bypass": "sprint", "process": "flow"}
    child = {
        **routed,
        **more,
        "init_from": {"run": {**routed, "bypass": "sprint", "process": "flow"}},
    }
    found = metric_names.parameters(decode(RunSpec, child))
    assert (found["start"], found["end"], found["rate"]) == (2, 8, 0.25)
    assert (found["bypass"], found["loss"]) == ("sprint", "both + repa 0.5 at 1")
    assert len(str(found["starts_from"])) == 16
    file = {"model": model, "init_from": {"file": "x.pt", "digest": "abcd"}}
    assert metric_names.parameters(decode(RunSpec, file))["starts_from"] == "file abcd"


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        (("gap/heldout", 0.5, 0.25, 0.75), "+0.50 ± 0.25"),
        (("gap/heldout", -0.5), "\N{MINUS SIGN}0.5000"),
        (("delta/fd@1k", 0.5), "+0.500"),
        (("fid@10k", 12.345), "12.3"),
        (("heldout/loss", 0.123456), "0.1235"),
        (("cost/train_flops", 8.5e12, 8e12, 9e12), "8.5 TFLOP"),
        (("fid@10k", float("nan")), ""),
    ],
)
def test_values_have_their_metrics_digits_and_units(numbers: tuple[Any, ...], text: str) -> None:
    assert metric_names.value_text(*numbers) == text


def test_labels_keep_counts_and_settings() -> None:
    names = ("fid[heldout]@10k w=2", "delta/heldout/loss", "my_metric@1k", "gap/heldout")
    assert [*map(metric_names.metric_label, names)] == [
        "FID[heldout]@10k, w=2", "Δ held-out loss", "my_metric@1k", "Δ held-out loss"
    ]  # fmt: skip
