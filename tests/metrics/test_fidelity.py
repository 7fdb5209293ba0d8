"""The kernel distance against its formula, and the spatial layer of Inception."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch_fidelity import feature_extractor_inceptionv3 as theirs

from tread_lab.metrics import fidelity
from tread_lab.metrics.fidelity import kernel_distance, spatial

CPU = torch.device("cpu")
Array = NDArray[np.float64]


def features(seed: int, count: int = 800, width: int = 60) -> Array:
    random = np.random.default_rng(seed)
    mixing = random.normal(size=(width, width)) * np.logspace(-2, 0, width)
    return np.abs(random.normal(size=(count, width)) @ mixing + 0.3 * seed)


def test_the_spatial_layer_is_the_first_branch_of_mixed_6(random_inception: Path) -> None:
    images = torch.randint(0, 256, (2, 3, 20, 20), dtype=torch.uint8)
    found = fidelity.inception(random_inception, CPU)(images)
    assert {layer: tuple(x.shape) for layer, x in found.items()} == {
        "pool": (2, 2048),
        "logits": (2, 1008),
        "spatial": (2, 2023),
    }
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


@pytest.mark.parametrize(
    ("generated", "real", "size"), [(1200, 1500, 1000), (7, 1500, 7), (1200, 9, 9)]
)
def test_subsets_of_the_kernel_distance_have_1000_images_where_there_are_as_many(
    generated: int, real: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def kid(*features: torch.Tensor, **options: Any) -> dict[str, float]:
        asked.append(([len(x) for x in features], options))
        return {"kernel_inception_distance_mean": 0.25, "kernel_inception_distance_std": 9.0}

    monkeypatch.setattr("torch_fidelity.metric_kid.kid_features_to_metric", kid)
    assert kernel_distance(torch.zeros(generated, 2), torch.zeros(real, 2)) == 0.25
    assert asked == [([generated, real], {"kid_subset_size": size, "verbose": False})]


def test_spatial_features_are_by_row_then_column_then_channel() -> None:
    x_BCHW = torch.arange(2 * 9 * 2 * 3).reshape(2, 9, 2, 3)
    found = spatial(x_BCHW)
    assert found.shape == (2, 2 * 3 * 7)
    assert found[0, :7].tolist() == [0, 6, 12, 18, 24, 30, 36]
    assert found[0, 7:21:7].tolist() == [1, 2] and found[0, 21] == 3 and found[1, 0] == 54
