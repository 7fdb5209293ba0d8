"""Inception weights: only the published file is unpickled."""

from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tread_lab.metrics import inception
from tread_lab.metrics.extraction import Reference
from tread_lab.metrics.features import score
from tread_lab.specs import UserError


@pytest.fixture(autouse=True)
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREAD_LAB_INCEPTION", raising=False)


def test_without_weights_fid_says_where_to_give_them(real: Tensor) -> None:
    with pytest.raises(UserError, match="TREAD_LAB_INCEPTION"):
        score(real[:10], Reference.of(real[10:20]), metrics=["fid"], extractor="inception")
    with pytest.raises(UserError, match="no Inception weights at"):
        score(
            real[:10],
            Reference.of(real[10:20]),
            metrics=["is"],
            extractor="inception",
            weights=Path("gone"),
        )


class _Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_another_file_is_refused_and_never_unpickled(
    real: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / inception.FILE
    file.write_bytes(pickle.dumps(_Trap(tmp_path / "sprung")))
    monkeypatch.setenv("TREAD_LAB_INCEPTION", str(file))
    with pytest.raises(UserError, match="is not the published") as caught:
        score(real[:10], Reference.of(real[10:20]), metrics=["fid"], extractor="inception")
    assert "\n" not in str(caught.value) and not (tmp_path / "sprung").exists()


def test_the_path_to_inception_with_random_weights_since_the_published_ones_are_not_shipped(
    real: Tensor, random_inception: Path, tmp_path: Path
) -> None:
    names = ("fid", "is", "is_shuffled", "kid", "precision", "recall")
    found = score(
        real[:10],
        Reference.of(real[10:15]),
        metrics=names,
        extractor="inception",
        weights=random_inception,
        cache=tmp_path,
    )
    assert list(found) == [
        "fid[heldout]@10",
        "is@10",
        "is_shuffled@10",
        "kid[heldout]@10",
        "precision[heldout]@10",
        "recall[heldout]@10",
    ]
    assert found["fid[heldout]@10"] > 0 and 0 <= found["precision[heldout]@10"] <= 1
    assert found["is_shuffled@10"] == pytest.approx(1)  # ten splits of one image each
    assert found["is@10"] >= 1  # one split of ten
    kept = load_file(next(tmp_path.glob("reference-5-*-1x16x16-inception-*.safetensors")))
    assert {name: x.shape for name, x in kept.items()} == {"pool": (5, 2048)}


@pytest.mark.skipif("TREAD_LAB_INCEPTION" not in os.environ, reason="needs the published weights")
def test_real_fid_is_proven_only_where_the_published_weights_are(real: Tensor) -> None:
    weights = Path(os.environ["TREAD_LAB_INCEPTION"])
    noise = torch.randint(0, 256, (50, 1, 16, 16), dtype=torch.uint8)
    near, far = (
        score(
            x, Reference.of(real[50:100]), metrics=["fid"], extractor="inception", weights=weights
        )["fid[heldout]@50"]
        for x in (real[:50], noise)
    )
    assert 0 < near < far


def test_a_changed_file_is_hashed_again(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    for content in (b"one", b"three"):
        file.write_bytes(content)
        assert inception.sha256(file) == hashlib.sha256(content).hexdigest()
