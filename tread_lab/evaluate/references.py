"""What sampled images are compared with: held-out images, decoded, or the file of a reference."""

# B batch, C channels, H height, W width

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tread_lab.data.source import Samples
from tread_lab.engine.precision import matrix_products
from tread_lab.evaluate.reference_file import ReferenceFile

if TYPE_CHECKING:
    from tread_lab.evaluate.extraction import Reference

REFERENCES = 200  # real images that are decoded and described at once


def heldout_reference(samples: Samples, device: torch.device) -> Reference:
    """Return the held-out images of a run's data, decoded where they are described."""
    from tread_lab.evaluate.extraction import Reference

    decided_by = (samples.fingerprint, samples.decoder, str(len(samples)))
    name = f"heldout-{'-'.join(decided_by)}"
    return Reference(name, lambda: all_images(samples, device))


def file_reference(file: ReferenceFile) -> Reference:
    """Return the images and moments of a file."""
    from tread_lab.evaluate.extraction import Reference

    name = f"{file.name}-{file.digest[:16]}"
    batches = lambda: map(torch.from_numpy, file.batches(REFERENCES))  # noqa: E731
    moments = {
        layer: (torch.from_numpy(mean), torch.from_numpy(covariance))
        for layer, (mean, covariance) in file.moments.items()
    }
    return Reference(name, batches, heldout=False, moments=moments)


def all_images(samples: Samples, device: torch.device) -> Iterator[Tensor]:
    """Yield all images of a split, uint8, batch by batch, decoded on `device`."""
    for start in range(0, len(samples), REFERENCES):
        ids = torch.arange(start, min(start + REFERENCES, len(samples)))
        yield pixels(samples, samples.take(ids)[0].to(device))


def pixels(samples: Samples, x_BCHW: Tensor) -> Tensor:
    """Return uint8 images of samples, on their device; 256 levels hardly show tf32 products."""
    with matrix_products("tf32"):
        return samples.pixels(x_BCHW)
