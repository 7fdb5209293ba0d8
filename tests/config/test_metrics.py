"""Claims about metrics: what each is called, in which features it is, what it compares with."""

from __future__ import annotations

import pytest

from tread_lab.config import UserError
from tread_lab.config.metrics import (
    DINOV2,
    INCEPTION,
    METRICS,
    by_extractor,
    extractor_for,
)
from tread_lab.records.metric_names import sample_metric


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
