"""Which features a metric means, and what it may be called."""

from __future__ import annotations

import pytest

from tread_lab.metrics.feature_space import (
    DINOV2,
    INCEPTION,
    by_extractor,
    check_metrics,
    extractor_for,
)
from tread_lab.records.metric_names import sample_metric
from tread_lab.specs import UserError
from tread_lab.specs.metrics import METRICS, OWN_FEATURES


def test_nothing_but_inception_features_is_ever_called_fid() -> None:
    for extractor in OWN_FEATURES.values():
        with pytest.raises(UserError, match="fid is not defined in the features of"):
            check_metrics(["fid"], extractor)
    with pytest.raises(UserError, match="fd is not defined in the features of 'inception'"):
        check_metrics(["fd"], INCEPTION)
    with pytest.raises(UserError, match="fid is not defined in the features of 'dinov2-large'"):
        check_metrics(["fid"], DINOV2)
    for source in ("fashion16", "latents"):
        assert extractor_for("fd_dinov2", source) == DINOV2
        for metric in set(METRICS) - {"fd", "fd_dinov2"}:
            extractor = extractor_for(metric, source)
            name = sample_metric(metric, extractor, 1000, heldout=False)
            assert (extractor == INCEPTION) == (name == f"{metric}@1k")


def test_data_without_an_extractor_of_their_own_are_told_what_to_ask_for() -> None:
    with pytest.raises(UserError, match="'latents' has none; ask for fid"):
        extractor_for("fd", "latents")
    assert extractor_for("precision", "latents") == INCEPTION


def test_metrics_of_one_extractor_are_computed_together() -> None:
    found = by_extractor(["fd", "fid", "precision", "is"], "fashion16")
    assert found == {"fashion16-v1": ("fd", "precision"), INCEPTION: ("fid", "is")}


def test_unknown_names_are_refused_with_a_suggestion() -> None:
    with pytest.raises(UserError, match="did you mean 'recall'"):
        check_metrics(["recal"], INCEPTION)
    with pytest.raises(UserError, match="did you mean 'fashion16-v1'"):
        check_metrics(["fd"], "fashion16-v2")
    with pytest.raises(UserError, match="did you mean 'recall'"):
        extractor_for("recal", "fashion16")


def test_metrics_of_any_features_are_defined_in_those_of_a_data_set() -> None:
    check_metrics(["fd", "kid", "precision", "recall"], "fashion16-v1")
    check_metrics(["fid", "is", "kid", "precision"], INCEPTION)
    check_metrics(["fd_dinov2"], DINOV2)
    for extractor in (DINOV2, INCEPTION):
        with pytest.raises(UserError, match=r"^metrics: unknown 'fod'"):
            check_metrics(["fod"], extractor)
    with pytest.raises(UserError, match=r"kid is not defined in the features of 'dinov2-large'"):
        check_metrics(["kid"], DINOV2)
