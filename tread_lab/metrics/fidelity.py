"""Inception-2015, its verified weights, and the kernel distance by torch-fidelity; its only door.

Each function imports what it needs of torch-fidelity: that takes 1.5 s, and most runs need none.
"""

# N images, B batch, C channels, H height, W width, D features, K classes

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from tread_lab.specs.errors import UserError

VARIABLE = "TREAD_LAB_INCEPTION"
FILE = "pt_inception-2015-12-05-6726825d.pth"  # as pytorch-fid and torch-fidelity publish it
SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
# A file of this text stands for random weights; names of numbers then say `stand-in`.
STAND_IN = "A stand-in for the weights of Inception-2015: random numbers, for rehearsals alone.\n"
STAND_IN_NAME = "stand-in"
STAND_IN_FILE = "stand-in.txt"  # lies in a folder of random numbers
STAND_IN_SHA256 = hashlib.sha256(STAND_IN.encode()).hexdigest()

# The shipped features do without it.
VERSION = version("torch-fidelity") if find_spec("torch_fidelity") else "absent"
SPATIAL_CHANNELS = 7  # of 192, at 17 x 17 places: 2,023 features
LAYERS = {"pool": "2048", "logits": "logits_unbiased"}


def inception_weights() -> Path:
    """Return the weights at TREAD_LAB_INCEPTION, or the stand-in; nothing else is ever unpickled.

    Raises:
        UserError: there are none, or the file is not the published one.
    """
    name = os.environ.get(VARIABLE)
    if not name:
        raise UserError(f"metrics: Inception features need {FILE}; give its path in {VARIABLE}")
    path = Path(name).expanduser()
    if not path.is_file():
        raise UserError(f"metrics: no Inception weights at {path}; {VARIABLE} must name {FILE}")
    if sha256(path) not in (SHA256, STAND_IN_SHA256):
        raise UserError(f"metrics: {path} is not the published {FILE}: its SHA-256 differs")
    return path


def is_stand_in(path: Path) -> bool:
    """Return whether a file stands for random weights."""
    return sha256(path) == STAND_IN_SHA256


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits; a process reads each file once."""
    stat = path.stat()
    return _sha256(path, stat.st_size, stat.st_mtime_ns, stat.st_ino)


@functools.cache
def _sha256(path: Path, size: int, changed: int, inode: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def inception_features(path: Path, device: torch.device) -> Callable[[Tensor], dict[str, Tensor]]:
    """Return Inception-2015: uint8 images [B, 1 or 3, H, W] -> features [B, D] by layer.

    `pool` is TensorFlow's pool_3, `logits` lack their bias as in ADM's evaluator. `spatial` is what
    it calls mixed_6/conv:0 [..., :7], the first channels of the 1x1 branch of the seventh mixed
    block, after its activation: `Mixed_6d.branch1x1` here (mixed, mixed_1, mixed_2 are Mixed_5b to
    5d, mixed_3 to mixed_7 are Mixed_6a to 6e, as the conversion of the weights has them). Its
    features are in TensorFlow's order: row, column, channel.
    """
    model = random_inception() if is_stand_in(path) else _published(path)
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


def _published(path: Path) -> Any:
    from torch_fidelity.utils import create_feature_extractor

    return create_feature_extractor(
        "inception-v3-compat",
        [*LAYERS.values()],
        cuda=False,
        feature_extractor_weights_path=str(path),
        verbose=False,
    )


def random_inception() -> Any:
    """Return the same network with random numbers, always the same, that keep their scale."""
    from torch_fidelity import feature_extractor_inceptionv3 as theirs

    network = theirs.FeatureExtractorInceptionV3
    with (
        mock.patch.object(theirs, "load_state_dict_from_url", lambda *_, **__: {}),
        mock.patch.object(network, "load_state_dict", lambda *_: None),
        torch.random.fork_rng(devices=[]),
    ):
        torch.manual_seed(0)
        made = network("inception-v3-compat", [*LAYERS.values()])
        for module in made.modules():  # the default shrinks what it is given at every layer
            if isinstance(module, torch.nn.Conv2d):
                torch.nn.init.kaiming_normal_(module.weight)
    return made


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
