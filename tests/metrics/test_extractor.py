"""The shipped extractor: what it was made from and how good it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from tread_lab.data import open_data
from tread_lab.metrics import extractor
from tread_lab.metrics.extractor import load_extractor, weights_path
from tread_lab.specs import DataSpec, UserError


def test_its_weights_say_what_they_were_made_from_and_it_is_what_is_shipped() -> None:
    with safe_open(weights_path("fashion16-v1"), framework="pt") as file:
        facts = file.metadata()
    assert facts["data"] == open_data(DataSpec(), "train").fingerprint
    assert float(facts["accuracy"]) > 0.88


def test_it_tells_nine_of_ten_held_out_images_apart() -> None:
    heldout = open_data(DataSpec(), "heldout")
    x_NCHW, labels_N = heldout.take(torch.arange(1000))
    features_ND, logits_NK = load_extractor("fashion16-v1")(heldout.pixels(x_NCHW))
    assert features_ND.shape == (1000, 128)
    assert (logits_NK.argmax(1) == labels_N).float().mean() > 0.87


def test_an_image_has_its_features_whatever_the_batch() -> None:
    model = load_extractor("fashion16-v1")
    images = torch.randint(0, 256, (7, 1, 16, 16), dtype=torch.uint8)
    assert torch.allclose(model(images)[0][3], model(images[3:4])[0][0], atol=1e-6)


def test_absent_or_damaged_weights_say_how_to_make_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.safetensors"
    monkeypatch.setattr(extractor, "weights_path", lambda name: path)
    for content in (None, b"", b"not weights at all"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UserError, match="train_extractor"):
            load_extractor("x")


def test_the_shipped_extractor_is_not_trained_any_more() -> None:
    model = load_extractor("fashion16-v1")
    assert not model.training and not any(x.requires_grad for x in model.parameters())
