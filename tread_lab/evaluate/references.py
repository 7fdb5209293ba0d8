"""What sampled images are compared with: held-out images, decoded, or the file of a reference."""

# B batch, C channels, H height, W width

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tread_lab.data.source import Samples
from tread_lab.evaluate.frechet import Moments
from tread_lab.evaluate.reference_file import ReferenceFile
from tread_lab.train.precision import matrix_products

REFERENCES = 200  # real images that are decoded and described at once


@dataclass(frozen=True)
class Reference:
    """Real images to compare with, named without being looked at.

    Attributes:
        name: all that decides them: data, decoder, number of images; or the digest of a file.
        batches: gives them again and again, uint8 [B, C, H, W], on any device.
        heldout: whether they are the data's own held-out images, which names of metrics say.
        moments: layer of Inception -> mean and covariance, where a file has them.
    """

    name: str
    batches: Callable[[], Iterable[Tensor]]
    heldout: bool = True
    moments: Mapping[str, Moments] = field(default_factory=dict)


def heldout_reference(samples: Samples, device: torch.device) -> Reference:
    """Return the held-out images of a run's data, decoded where they are described."""
    name = f"heldout-{samples.fingerprint}-{samples.decoder}-{len(samples)}"
    return Reference(name, lambda: all_images(samples, device))


def file_reference(file: ReferenceFile) -> Reference:
    """Return the images and moments of a file."""
    moments = {
        layer: (torch.from_numpy(mean), torch.from_numpy(covariance))
        for layer, (mean, covariance) in file.moments.items()
    }
    name = f"{file.name}-{file.digest[:16]}"
    batches = lambda: map(torch.from_numpy, file.batches(REFERENCES))  # noqa: E731
    return Reference(name, batches, heldout=False, moments=moments)


def all_images(samples: Samples, device: torch.device) -> Iterator[Tensor]:
    """Yield all images of a split, uint8, batch by batch, decoded on `device`."""
    for ids in torch.split(torch.arange(len(samples)), REFERENCES):
        yield pixels(samples, samples.take(ids)[0].to(device))


def pixels(samples: Samples, x_BCHW: Tensor) -> Tensor:
    """Return uint8 images of samples, on their device; 256 levels hardly show tf32 products."""
    with matrix_products("tf32"):
        return samples.pixels(x_BCHW)
