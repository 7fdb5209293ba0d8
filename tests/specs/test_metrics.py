"""Claims about metrics: what each is called, in which features it is, what it compares with."""

from __future__ import annotations

import pytest

from tread_lab.records.metric_names import sample_metric
from tread_lab.specs import UserError
from tread_lab.specs.metrics import (
    DINOV2,
    HELDOUT,
    INCEPTION,
    METRICS,
    OWN_FEATURES,
    PUBLISHED,
    MetricKind,
    by_extractor,
    extractor_for,
)


def test_what_each_metric_is_called_and_which_way_is_better() -> None:
    said = {name: (m.kind.label, m.kind.sign) for name, m in METRICS.built_in.items()}
    assert said == {
        "fd": ("FD", 1), "fd_dinov2": ("FD-DINOv2", 1), "fid": ("FID", 1), "sfid": ("sFID", 1),
        "fid_inf": ("FID, extrapolated", 1), "fid_inf_error": ("", 0), "kid": ("KID", 1),
        "is": ("IS", -1), "is_shuffled": ("IS, shuffled", -1), "precision": ("", -1),
        "recall": ("", -1),
    }  # fmt: skip
    assert MetricKind() == MetricKind("neither", "", "difference", "", "", "")
    assert {m.kind.compared for m in METRICS.built_in.values()} == {"difference"}


def test_the_moments_in_a_file_are_enough_for_distances_in_inceptions_features() -> None:
    given = [name for name, metric in METRICS.built_in.items() if metric.moments_given]
    assert given == ["fd", "fid", "sfid", "fid_inf", "fid_inf_error", "is"]


def test_an_extrapolation_is_recorded_with_its_error() -> None:
    also = {name: metric.also for name, metric in METRICS.built_in.items() if metric.also}
    assert also == {"fid_inf": ("fid_inf_error",)}
    assert OWN_FEATURES == {"fashion16": "fashion16-v1"}


def test_the_published_files_have_these_names() -> None:
    assert HELDOUT == "heldout"
    assert PUBLISHED == {
        "imagenet64": "VIRTUAL_imagenet64_labeled.npz",
        "imagenet128": "VIRTUAL_imagenet128_labeled.npz",
        "imagenet256": "VIRTUAL_imagenet256_labeled.npz",
        "imagenet512": "VIRTUAL_imagenet512.npz",
        "lsun_bedroom256": "VIRTUAL_lsun_bedroom256.npz",
        "lsun_cat256": "VIRTUAL_lsun_cat256.npz",
        "lsun_horse256": "VIRTUAL_lsun_horse256.npz",
    }


@pytest.mark.parametrize("source", ["fashion16", "latents"])
def test_nothing_but_inception_features_is_ever_called_fid(source: str) -> None:
    assert extractor_for("fd_dinov2", source) == DINOV2
    for metric in set(METRICS) - {"fd", "fd_dinov2"}:
        extractor = extractor_for(metric, source)
        name = sample_metric(metric, extractor, 1000, heldout=False)
        assert (extractor == INCEPTION) == (name == f"{metric}@1k")


def test_data_without_an_extractor_of_their_own_are_told_what_to_ask_for() -> None:
    with pytest.raises(UserError, match="'latents' has none; ask for fid"):
        extractor_for("fd", "latents")
    with pytest.raises(UserError, match="did you mean 'recall'"):
        extractor_for("recal", "fashion16")
    assert extractor_for("precision", "latents") == INCEPTION


def test_metrics_of_one_extractor_are_computed_together() -> None:
    found = by_extractor(["fd", "fid", "precision", "is"], "fashion16")
    assert found == {"fashion16-v1": ("fd", "precision"), INCEPTION: ("fid", "is")}
