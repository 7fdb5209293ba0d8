"""Images go through an extractor in batches; a cache names all that decides the features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tread_lab.config import UserError
from tread_lab.evaluate import extraction as door
from tread_lab.evaluate.extraction import Reference, described

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


def test_an_entry_is_named_for_all_that_decides_its_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "VERSION", "1.2")
    extraction: Any = Described()
    reference = Reference("a b/c", lambda: [IMAGES[:3], IMAGES[3:4]])
    found = described(reference, extraction, ["pool", "logits"], (1, 2, 2), tmp_path)
    assert found["logits"].flatten().tolist() == [0, 8, 16, 24]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"a_b_c-1x2x2-{space}-0123456789ab-float32-cpu-1.2.safetensors"
        for space in ("inception", "inception-logits")
    ]
    again = described(reference, extraction, ["logits"], (1, 2, 2), tmp_path)
    assert torch.equal(again["logits"], found["logits"]) and extraction.batches == [3, 1]
    with pytest.raises(UserError) as caught:
        described(reference, extraction, ["spatial"], (3, 2, 2), tmp_path)
    said = "generated and reference images must be of one shape, got [3, 2, 2] and [1, 2, 2]"
    assert str(caught.value) == f"metrics: {said}"
