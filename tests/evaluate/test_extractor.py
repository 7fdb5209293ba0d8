"""The shipped extractor: what it was made from and how good it is."""

from __future__ import annotations

import torch

from tread_lab.config import DataSpec
from tread_lab.data import open_data
from tread_lab.evaluate.extractor import load_extractor


def test_it_tells_nine_of_ten_held_out_images_apart_and_is_not_trained_any_more() -> None:
    heldout, model = open_data(DataSpec(), "heldout"), load_extractor("fashion16-v1")
    x_NCHW, labels_N = heldout.take(torch.arange(1000))
    features_ND, logits_NK = model(heldout.pixels(x_NCHW))
    assert features_ND.shape == (1000, 128)
    assert (logits_NK.argmax(1) == labels_N).float().mean() > 0.87
    assert not model.training and not any(x.requires_grad for x in model.parameters())
