"""Inception's published file alone is unpickled; its layers, and the kernel distance."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch

from tread_lab.config import UserError
from tread_lab.evaluate import fidelity
from tread_lab.evaluate.extraction import Extraction
from tread_lab.evaluate.fidelity import inception_features
from tread_lab.evaluate.references import WIDTHS

CPU = torch.device("cpu")


class _Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_another_file_is_refused_and_never_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / fidelity.FILE
    file.write_bytes(pickle.dumps(_Trap(tmp_path / "sprung")))
    monkeypatch.setenv("TREAD_LAB_INCEPTION", str(file))
    with pytest.raises(UserError, match="is not the published") as caught:
        Extraction("inception", device=CPU)
    assert "\n" not in str(caught.value) and not (tmp_path / "sprung").exists()


def test_spatial_layer_is_branch_of_mixed_6(random_inception: Path) -> None:
    from torch_fidelity import feature_extractor_inceptionv3 as theirs

    images = torch.randint(0, 256, (2, 3, 20, 20), dtype=torch.uint8)
    found = inception_features(random_inception, CPU)(images)
    assert {layer: tuple(x.shape) for layer, x in found.items()} == {
        "pool": (2, 2048),
        "logits": (2, 1008),
        "spatial": (2, 2023),
    }
    assert WIDTHS == {"pool": 2048, "spatial": 2023}
    network = theirs.FeatureExtractorInceptionV3(
        "inception-v3-compat", ["768"], feature_extractor_weights_path=str(random_inception)
    )
    x = theirs.interpolate_bilinear_2d_like_tensorflow1x(
        images.float(), size=(299, 299), align_corners=False
    )
    x = (x - 128) / 128
    for name in (
        *("Conv2d_1a_3x3", "Conv2d_2a_3x3", "Conv2d_2b_3x3", "MaxPool_1"),
        *("Conv2d_3b_1x1", "Conv2d_4a_3x3", "MaxPool_2"),
        *("Mixed_5b", "Mixed_5c", "Mixed_5d"),  # mixed, mixed_1, mixed_2
        *("Mixed_6a", "Mixed_6b", "Mixed_6c"),  # mixed_3, mixed_4, mixed_5
    ):
        x = getattr(network, name)(x)
    branch = network.Mixed_6d.branch1x1  # mixed_6/conv
    x = torch.relu(branch.bn(branch.conv(x)))
    assert x.shape == (2, 192, 17, 17)
    places = x.permute(0, 2, 3, 1)[..., :7].reshape(2, -1)  # as TensorFlow lays it out
    assert torch.allclose(found["spatial"], places, atol=1e-5)
    assert places.std() > 0.01
