"""Every metric says whether it is quality, cost or neither, under all the names it goes by."""

from __future__ import annotations

from typing import Any

import pytest

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


@pytest.mark.parametrize("name", NATURES)
def test_a_column_has_the_nature_of_its_metric(name: str) -> None:
    kind = metric_names.metric_kind(name)
    assert (kind.nature, kind.sign) == NATURES[name]
    assert metric_names.lower_is_better(name) == (kind.sign >= 0)


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
