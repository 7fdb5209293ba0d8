"""Inception-2015, its verified weights, and the kernel distance by torch-fidelity; its only door.

Each function imports what it needs of torch-fidelity: that takes 1.5 s, and most runs need none.
"""

# N images, B batch, C channels, H height, W width, D features, K classes

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

from tread_lab.config.errors import UserError
from tread_lab.data.content import sha256

VARIABLE = "TREAD_LAB_INCEPTION"
FILE = "pt_inception-2015-12-05-6726825d.pth"  # as pytorch-fid and torch-fidelity publish it
SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"

VERSION = version("torch-fidelity")
SPATIAL_CHANNELS = 7  # of 192, at 17 x 17 places: 2,023 features
LAYERS = {"pool": "2048", "logits": "logits_unbiased"}


def inception_weights() -> Path:
    """Return the weights at TREAD_LAB_INCEPTION, the only file that is ever unpickled.

    Raises:
        UserError: missing, or not the published file.
    """
    name = os.environ.get(VARIABLE)
    if not name:
        raise UserError(
            f"metrics: Inception features require {FILE} (in torch-fidelity's releases: weights-"
            f"{FILE.removeprefix('pt_')}). Set {VARIABLE} to its path."
        )
    path = Path(name).expanduser()
    if not path.is_file():
        raise UserError(f"{VARIABLE}: must be the path of {FILE}, got {path}")
    if sha256(path) != SHA256:
        raise UserError(f"metrics: {path} is not the published {FILE}: its SHA-256 differs")
    return path


def inception_features(path: Path, device: torch.device) -> Callable[[Tensor], dict[str, Tensor]]:
    """Return Inception-2015: uint8 images [B, 1 or 3, H, W] -> features [B, D] by layer.

    `pool` is TensorFlow's pool_3; `logits` are without bias, as in ADM's evaluator. `spatial` is
    its mixed_6/conv:0 [..., :7]: the first channels of the 1x1 branch of the seventh mixed block,
    after the activation, here `Mixed_6d.branch1x1` (mixed to mixed_2 are Mixed_5b to 5d, mixed_3 to
    mixed_7 are Mixed_6a to 6e). Features are in TensorFlow's order: row, column, channel.
    """
    from torch_fidelity.utils import create_feature_extractor

    model = create_feature_extractor(
        "inception-v3-compat",
        [*LAYERS.values()],
        cuda=False,
        feature_extractor_weights_path=str(path),
        verbose=False,
    )
    model = model.eval().to(device)
    seen: list[Tensor] = []
    model.Mixed_6d.branch1x1.register_forward_hook(
        lambda module, inputs, out_BCHW: seen.append(out_BCHW)
    )

    def describe(images_BCHW: Tensor) -> dict[str, Tensor]:
        seen.clear()
        features = dict(zip(LAYERS, model(images_BCHW.expand(-1, 3, -1, -1))))
        return {**features, "spatial": spatial(seen.pop())}

    return describe


def spatial(out_BCHW: Tensor) -> Tensor:
    """Return the features of sFID [B, 17 * 17 * 7] of an activation [B, 192, 17, 17]."""
    return out_BCHW[:, :SPATIAL_CHANNELS].permute(0, 2, 3, 1).flatten(1)


def kernel_distance(one_ND: Tensor, other_MD: Tensor) -> float:
    """Return KID (Binkowski et al. 2018), over 100 random subsets of at most 1,000 images."""
    from torch_fidelity.metric_kid import kid_features_to_metric

    size = min(1000, len(one_ND), len(other_MD))
    distance = kid_features_to_metric(one_ND, other_MD, kid_subset_size=size, verbose=False)
    return float(distance["kernel_inception_distance_mean"])


def shuffled_inception_score(logits_NK: Tensor) -> float:
    """Return torch-fidelity's inception score: ten parts of the shuffled images."""
    from torch_fidelity.metric_isc import isc_features_to_metric

    return float(isc_features_to_metric(logits_NK)["inception_score_mean"])
