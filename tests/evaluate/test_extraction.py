"""Images go through an extractor in batches; a cache names all that decides the features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tread_lab.config import DataSpec, UserError
from tread_lab.data import open_data
from tread_lab.evaluate import extraction as door
from tread_lab.evaluate.extraction import described, load_extractor
from tread_lab.evaluate.references import Reference

CPU = torch.device("cpu")
IMAGES = torch.arange(250 * 4).reshape(250, 1, 2, 2).to(torch.uint8)


class Described:
    """A feature space whose two layers are the first pixel, once and twice."""

    extractor, device, made_by = "inception", CPU, "0123456789abcdef"

    def __init__(self) -> None:
        self.batches: list[int] = []

    def __call__(self, images_BCHW: Tensor) -> dict[str, Tensor]:
        self.batches.append(len(images_BCHW))
        first_B1 = images_BCHW[:, 0, 0, :1].float()
        return {"pool": first_B1, "logits": 2 * first_B1}


def test_cache_names_all_that_decides_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "VERSION", "1.2")
    extraction: Any = Described()
    reference = Reference("a b/c", lambda: [IMAGES[:3], IMAGES[3:4]])
    found = described(reference, extraction, ["pool", "logits"], (1, 2, 2), tmp_path)
    assert found["logits"].flatten().tolist() == [0, 8, 16, 24]
    (kept,) = tmp_path.iterdir()
    digests = "0123456789ab-float32-cpu-1.2.safetensors"
    assert kept.name == f"a_b_c-1x2x2-inception-logits-pool-{digests}"
    again = described(reference, extraction, ["logits", "pool"], (1, 2, 2), tmp_path)
    assert torch.equal(again["logits"], found["logits"]) and extraction.batches == [3, 1]
    with pytest.raises(UserError) as caught:
        described(reference, extraction, ["spatial"], (3, 2, 2), tmp_path)
    said = "generated and reference images must have the same shape, got [3, 2, 2] and [1, 2, 2]"
    assert str(caught.value) == f"metrics: {said}"


def test_shipped_extractor_tells_nine_in_ten_apart() -> None:
    heldout, model = open_data(DataSpec(), "heldout"), load_extractor("fashion16-v1")
    x_NCHW, labels_N = heldout.take(torch.arange(1000))
    features_ND, logits_NK = model(heldout.pixels(x_NCHW))
    assert features_ND.shape == (1000, 128)
    assert (logits_NK.argmax(1) == labels_N).float().mean() > 0.87
    assert not model.training and not any(x.requires_grad for x in model.parameters())
