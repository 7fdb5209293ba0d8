"""Features of images in a named space, and those of references, which a lab's cache keeps."""

# N images, B batch, C channels, H height, W width, D features

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tread_lab.config.errors import UserError
from tread_lab.config.metrics import DINOV2, INCEPTION
from tread_lab.evaluate.dinov2 import dinov2_features, dinov2_weights
from tread_lab.evaluate.extractor import load_extractor, weights_path
from tread_lab.evaluate.fidelity import (
    VERSION,
    inception_features,
    inception_weights,
    sha256,
)
from tread_lab.evaluate.references import Reference
from tread_lab.records.durable import replacing

BATCH = 100
DTYPE = "float32"  # arithmetic inside the extractors

# describe(images_BCHW) -> features [B, D] by layer, on the device
Describe = Callable[[Tensor], dict[str, Tensor]]


@dataclass(frozen=True)
class Space:
    """A feature space.

    Attributes:
        weights: gives the file of its weights, or raises a UserError.
        open: makes it of that file on a device.
    """

    weights: Callable[[], Path]
    open: Callable[[Path, torch.device], Describe]


def _own(path: Path, device: torch.device) -> Describe:
    """A shipped extractor; float64 features give exact moments."""
    model = load_extractor(path.stem).to(device)

    def describe(images_BCHW: Tensor) -> dict[str, Tensor]:
        return dict(zip(("pool", "logits"), (layer.double() for layer in model(images_BCHW))))

    return describe


SPACES: Mapping[str, Space] = {
    INCEPTION: Space(inception_weights, inception_features),
    DINOV2: Space(dinov2_weights, dinov2_features),
    "fashion16-v1": Space(lambda: weights_path("fashion16-v1"), _own),
}


class Extraction:
    """The features of images in one space: one batch at a time, on one device.

    Its products must be exact in fp32: the published numbers know no TF32.

    Args:
        extractor: the name of the space in `SPACES`.

    Attributes:
        made_by: digest of the extractor's weights.

    Raises:
        UserError: weights that are absent or not the published ones.
    """

    def __init__(self, extractor: str, *, device: torch.device) -> None:
        self.extractor, self.device, space = extractor, device, SPACES[extractor]
        path = space.weights()
        self._describe, self.made_by = space.open(path, device), sha256(path)

    def __call__(self, images_BCHW: Tensor) -> dict[str, Tensor]:
        """Return features [B, D] of every layer, on the device, of uint8 images from anywhere."""
        assert images_BCHW.dtype == torch.uint8 and images_BCHW.ndim == 4
        parts = torch.split(images_BCHW, BATCH)
        with torch.no_grad():
            described = [self._describe(part.to(self.device)) for part in parts]
        return {layer: torch.cat([one[layer] for one in described]) for layer in described[0]}


def described(
    reference: Reference,
    extraction: Extraction,
    layers: Iterable[str],
    shape: tuple[int, ...],
    cache: Path | None = None,
) -> dict[str, Tensor]:
    """Return the features [N, D] of all images of a reference by layer, on the CPU.

    One pass describes what no cache holds.

    Args:
        shape: (C, H, W) of the images.
        cache: folder that keeps the features, under names that hold the reference's own, the
            extractor's weights and the arithmetic; then no reference is decoded again.

    Raises:
        UserError: the images are of another shape, or the cache cannot be written.
    """
    features: dict[str, Tensor] = {}
    paths = {layer: _path(cache, reference, extraction, layer, shape) for layer in layers}
    for path in paths.values():
        if path is not None and path.exists():
            features |= _stored(path)
    if not (missing := [layer for layer in paths if layer not in features]):
        return features
    parts: list[dict[str, Tensor]] = []
    for images_BCHW in reference.batches():
        if (real := tuple(images_BCHW.shape[1:])) != shape:
            raise UserError(
                f"metrics: generated and reference images must be of one shape, got {list(shape)}"
                f" and {list(real)}"
            )
        found = extraction(images_BCHW)
        parts.append({layer: found[layer].cpu() for layer in missing})
    for layer in missing:
        features[layer] = torch.cat([part[layer] for part in parts])
        if path := paths[layer]:
            with replacing(path) as temporary:
                save_file({layer: features[layer].contiguous()}, temporary)
    return features


def _stored(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path}: must be safetensors, got {error}. Try deleting it.") from None


def _path(
    cache: Path | None,
    reference: Reference,
    extraction: Extraction,
    layer: str,
    shape: tuple[int, ...],
) -> Path | None:
    """Return the file that holds everything that decides the features in its name."""
    if cache is None:
        return None
    safe, size = re.sub(r"[^\w.-]", "_", reference.name), "x".join(map(str, shape))
    space = extraction.extractor if layer == "pool" else f"{extraction.extractor}-{layer}"
    version = f"{DTYPE}-{extraction.device.type}-{VERSION}"
    return cache / f"{safe}-{size}-{space}-{extraction.made_by[:12]}-{version}.safetensors"
