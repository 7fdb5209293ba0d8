"""Scoring: each metric by its definition, whatever the cache keeps, and what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.evaluate.conftest import score
from tests.evaluate.test_formulas import adms_frechet_of, adms_precision_recall
from tread_lab.config.errors import NotFinite
from tread_lab.config.metrics import METRICS
from tread_lab.evaluate import features as door
from tread_lab.evaluate.extraction import load_extractor
from tread_lab.evaluate.features import MEASURES, Scorer, evenly
from tread_lab.evaluate.fidelity import shuffled_inception_score
from tread_lab.evaluate.references import Reference
from tread_lab.records.metric_names import METRIC_KINDS

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


def test_every_metric_has_code() -> None:
    assert set(MEASURES) == set(METRICS) <= set(METRIC_KINDS)
    logits_NK = torch.randn(40, 3)
    seen: Any = SimpleNamespace(generated={"pool": -logits_NK, "logits": logits_NK})
    assert MEASURES["is_shuffled"](seen) == shuffled_inception_score(logits_NK)


class Layers:
    """An extractor of three layers, by the first pixel of an image."""

    POOL = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    extractor, device = "inception", torch.device("cpu")

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, images_BCHW: Tensor) -> dict[str, Tensor]:
        pool_BD = self.POOL[images_BCHW[:, 0, 0, 0].long()]
        return {"pool": pool_BD, "spatial": pool_BD + 2, "logits": 1000 * pool_BD}


def test_each_metric_is_of_its_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both layers have the covariance 8/15 I; the references have I, and means 0 and 1."""
    monkeypatch.setattr(door, "Extraction", Layers)
    metrics = ["is", "sfid", "fid", "recall"]
    images = torch.arange(16).remainder(4).to(torch.uint8)[:, None, None, None]
    given = {
        "pool": (torch.zeros(2).double(), torch.eye(2).double()),
        "spatial": (torch.ones(2).double(), torch.eye(2).double()),
    }
    reference = Reference("r", lambda: [images], given, file=Path("r.npz"))
    how: Any = {"count": 16, "device": Layers.device}
    scorer = Scorer(metrics, "inception", reference, (1, 1, 1), **how)
    scorer.add(images[:6])
    scorer.add(images[6:])
    found, _ = scorer.scores()
    spread = 2 * (1 + 8 / 15 - 2 * (8 / 15) ** 0.5)
    assert {name: round(value, 9) for name, value in found.items()} == {
        "is@16": pytest.approx(2.0),
        "sfid@16": pytest.approx(2 + spread),
        "fid@16": pytest.approx(spread),
        "recall@16": 1.0,
    }
    monkeypatch.setattr(Layers, "extractor", "dinov2-large")  # moments of a file are Inception's
    other = Scorer(["fd_dinov2"], "dinov2-large", reference, (1, 1, 1), **how)
    other.add(images)
    assert [*other.scores()[0].values()] == [pytest.approx(0, abs=1e-9)]


def test_metric_must_be_finite(
    monkeypatch: pytest.MonkeyPatch, real: Tensor, reference: Tensor
) -> None:
    monkeypatch.setitem(MEASURES, "fd", lambda compared: float("nan"))
    with pytest.raises(NotFinite, match=r"^evaluate: fd must be finite, got nan"):
        score(real, reference, metrics=["fd"], extractor=OWN)
