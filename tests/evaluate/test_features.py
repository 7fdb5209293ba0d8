"""Scoring: each metric by its definition, whatever the cache keeps, and what is refused."""

from __future__ import annotations

import pytest
from torch import Tensor

from tests.evaluate.conftest import score
from tests.evaluate.test_formulas import adms_frechet_of, adms_precision_recall
from tread_lab.evaluate import features as door
from tread_lab.evaluate.extraction import load_extractor
from tread_lab.evaluate.features import evenly

OWN = "fashion16-v1"
ALL = ("fd", "kid", "precision", "recall")


def test_metrics_are_their_definitions(real: Tensor, reference: Tensor) -> None:
    from torch_fidelity.metric_kid import kid_features_to_metric

    model = load_extractor(OWN)
    x_ND, y_MD = (model(images)[0].double() for images in (real, reference))
    kernel = kid_features_to_metric(x_ND, y_MD, kid_subset_size=len(real), verbose=False)
    features = x_ND.numpy(), y_MD.numpy()
    ours = score(real, reference, metrics=ALL, extractor=OWN)
    assert [*ours.values()] == pytest.approx(
        [
            adms_frechet_of(*features),
            kernel["kernel_inception_distance_mean"],
            *adms_precision_recall(*features),
        ],
        rel=1e-6,
    )
    assert ours[f"fd[{OWN}]@150"] == pytest.approx(1.117, abs=0.01)  # of the shipped weights


def test_only_precision_and_recall_cap_the_references(
    real: Tensor, reference: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert door.MOST_NEIGHBOURS == 10_000, "as ADM's evaluator has them"
    whole = score(real, reference, metrics=["fd"], extractor=OWN)
    near = score(real, evenly(reference, 200), metrics=["precision", "recall"], extractor=OWN)
    monkeypatch.setattr(door, "MOST_NEIGHBOURS", 200)
    capped = score(real, reference, metrics=["precision", "fd", "recall"], extractor=OWN)
    assert capped == {**whole, **near}
