"""Scores of sampled images: every feature space in one pass, against held-out images or a file."""

# B batch, C channels, H height, W width

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tread_lab.data.source import Samples
from tread_lab.engine.precision import matrix_products
from tread_lab.metrics.reference_file import ReferenceFile
from tread_lab.specs.evaluation import SamplesSpec
from tread_lab.specs.metrics import by_extractor

if TYPE_CHECKING:
    from tread_lab.metrics.extraction import Reference

REFERENCES = 200  # real images that are decoded and described at once


class SampleScores:
    """All metrics of one evaluation, from its images batch by batch.

    Features are exact fp32 products, which the published numbers are.

    Args:
        source: the data source of the run.
        reference, shape, cache: see `Scorer`.

    Raises:
        UserError: weights that are absent or not the published ones; references of another shape,
            or damaged.
    """

    def __init__(
        self,
        spec: SamplesSpec,
        source: str,
        reference: Reference,
        shape: tuple[int, ...],
        device: torch.device,
        cache: Path | None,
    ) -> None:
        self._scorers = {}
        for extractor, metrics in by_extractor(spec.metrics, source).items():
            from tread_lab.metrics.features import Scorer

            with matrix_products("fp32"):
                self._scorers[extractor] = Scorer(
                    metrics,
                    extractor,
                    reference,
                    shape,
                    count=spec.count,
                    device=device,
                    cache=cache,
                )

    @property
    def fingerprint(self) -> dict[str, str]:
        """Extractor -> digest of its weights."""
        return {name: scorer.extraction.made_by for name, scorer in self._scorers.items()}

    def add(self, images_BCHW: Tensor) -> None:
        """Take the next images, in batches as they were drawn: sums depend on these."""
        with matrix_products("fp32"):
            for scorer in self._scorers.values():
                scorer.add(images_BCHW)

    def scores(self) -> dict[str, float]:
        """Return the metrics of all images by their names in the record."""
        scores: dict[str, float] = {}
        with matrix_products("fp32"):
            for scorer in self._scorers.values():
                scores |= scorer.scores()
        return scores


def heldout_reference(samples: Samples, device: torch.device) -> Reference:
    """Return the held-out images of a run's data, decoded where they are described."""
    from tread_lab.metrics.extraction import Reference

    decided_by = (samples.fingerprint, samples.decoder, str(len(samples)))
    name = f"heldout-{'-'.join(decided_by)}"
    return Reference(name, lambda: all_images(samples, device))


def file_reference(file: ReferenceFile) -> Reference:
    """Return the images and moments of a file."""
    from tread_lab.metrics.extraction import Reference

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
