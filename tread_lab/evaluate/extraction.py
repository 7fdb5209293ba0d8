"""Features of images in a named space, and those of references, which a lab's cache keeps."""

# N images, B batch, C channels, H height, W width, D features, K classes

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tread_lab.config.errors import UserError
from tread_lab.config.metrics import DINOV2, INCEPTION
from tread_lab.data.content import sha256
from tread_lab.evaluate.fidelity import VERSION, inception_features, inception_weights
from tread_lab.evaluate.pretrained import dinov2_features, dinov2_weights
from tread_lab.evaluate.references import Reference
from tread_lab.records.durable import replacing

BATCH = 100
DTYPE = "float32"  # arithmetic inside the extractors
OWN = "fashion16-v1"  # the shipped classifier of the embedded images
WIDTHS, STRIDES = (32, 64, 64, 128), (1, 2, 1, 2)  # of its convolutions

# describe(images_BCHW) -> features [B, D] by layer, on the device
Describe = Callable[[Tensor], dict[str, Tensor]]


@dataclass(frozen=True)
class Space:
    """A feature space.

    Attributes:
        weights: returns the file of its weights, or raises a UserError.
        open: loads the file on a device.
    """

    weights: Callable[[], Path]
    open: Callable[[Path, torch.device], Describe]


class Extractor(nn.Module):
    """Four 3x3 convolutions and a mean over places, trained as a classifier.

    Frechet distances in its features are comparable only for equal data set, weights and number of
    samples, which are part of the metric's name. They are never called FID.
    """

    def __init__(self, *, channels: int = 1, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width, stride in zip(WIDTHS, STRIDES, strict=True):
            layers += [
                nn.Conv2d(channels, width, 3, stride, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
            channels = width
        self.convolutions = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, images_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Return features [B, D] and class logits [B, K] of uint8 images."""
        assert images_BCHW.dtype == torch.uint8
        x_BDHW = self.convolutions(images_BCHW.float() / 127.5 - 1)
        features_BD = x_BDHW.mean(dim=(2, 3))
        return features_BD, self.head(features_BD)


def weights_path(name: str = OWN) -> Path:
    """Return the path of the weights of the shipped extractor `name`."""
    return Path(str(files("tread_lab.evaluate") / "assets" / f"{name}.safetensors"))


def load_extractor(name: str) -> Extractor:
    """Return the shipped extractor `name`, ready to use."""
    model = Extractor()
    model.load_state_dict(load_file(weights_path(name)))
    return model.eval().requires_grad_(False)


def _own(path: Path, device: torch.device) -> Describe:
    """The shipped extractor; float64 features give exact moments."""
    model = load_extractor(path.stem).to(device)

    def describe(images_BCHW: Tensor) -> dict[str, Tensor]:
        return dict(zip(("pool", "logits"), (layer.double() for layer in model(images_BCHW))))

    return describe


SPACES: Mapping[str, Space] = {
    INCEPTION: Space(inception_weights, inception_features),
    DINOV2: Space(dinov2_weights, dinov2_features),
    OWN: Space(weights_path, _own),
}


class Extraction:
    """The features of images in one space: one batch at a time, on one device.

    Products are exact in fp32, as for published numbers.

    Args:
        extractor: the name of the space in `SPACES`.

    Attributes:
        made_by: digest of the extractor's weights.

    Raises:
        UserError: missing weights, or not the published ones.
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
    layers: Collection[str],
    shape: tuple[int, ...],
    cache: Path | None = None,
) -> dict[str, Tensor]:
    """Return the features [N, D] of all images of a reference by layer, on the CPU.

    Args:
        shape: (C, H, W) of the images.
        cache: folder of cached features, keyed by reference, extractor weights and arithmetic.

    Raises:
        UserError: images of another shape, or an unwritable cache.
    """
    if not layers:
        return {}
    kept = None if cache is None else cache / _name(reference, extraction, layers, shape)
    if kept is not None and kept.exists():
        return load_file(kept)
    parts: list[dict[str, Tensor]] = []
    for images_BCHW in reference.batches():
        if (real := tuple(images_BCHW.shape[1:])) != shape:
            raise UserError(
                "metrics: generated and reference images must have the same shape, got "
                f"{list(shape)} and {list(real)}"
            )
        found = extraction(images_BCHW)
        parts.append({layer: found[layer].cpu() for layer in layers})
    features = {layer: torch.cat([part[layer] for part in parts]) for layer in layers}
    if kept is not None:
        with replacing(kept) as temporary:
            save_file(features, temporary)
    return features


def _name(
    reference: Reference, extraction: Extraction, layers: Collection[str], shape: tuple[int, ...]
) -> str:
    """Return the name of a file of features, with everything that decides them."""
    safe, size = re.sub(r"[^\w.-]", "_", reference.name), "x".join(map(str, shape))
    space = "-".join([extraction.extractor, *sorted(layers)])
    version = f"{DTYPE}-{extraction.device.type}-{VERSION}"
    return f"{safe}-{size}-{space}-{extraction.made_by[:12]}-{version}.safetensors"
