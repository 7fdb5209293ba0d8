"""Every metric of generated images, from what is kept of their features batch by batch."""

# N images, B batch, C channels, H height, W width, D features

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from tread_lab.config.errors import NotFinite
from tread_lab.config.metrics import INCEPTION, METRICS
from tread_lab.config.registry import Registry
from tread_lab.evaluate.extraction import Extraction, described
from tread_lab.evaluate.fidelity import kernel_distance, shuffled_inception_score
from tread_lab.evaluate.formulas import (
    Moments,
    RunningMoments,
    SplitSums,
    frechet_distance,
    frechet_influences,
    precision_recall,
)
from tread_lab.evaluate.references import Reference
from tread_lab.records.metric_names import sample_metric

FRECHET = ("fd", "fd_dinov2", "fid", "sfid")
IMAGES_A_FEATURE = 2  # at least, for a standard error: fewer images tell little about a covariance
MOST_NEIGHBOURS = 10_000  # references that precision and recall look at, as the ADM evaluator does


class Keeper(Protocol):
    """Running sums of the features of one layer, of constant size."""

    def add(self, x_BD: Tensor) -> None: ...


# layer -> what keeps its moments
KEEPERS: Mapping[str, Callable[[], Keeper]] = {
    "pool": RunningMoments,
    "spatial": RunningMoments,
    "logits": SplitSums,
}


class Scorer:
    """Metrics of one feature space for batches of generated images.

    Each image passes the extractor once. Features are kept (fp32, 8 KB per image for Inception) for
    metrics of neighbours or subsets, and for the standard error of a Frechet distance, which
    requires more than `IMAGES_A_FEATURE` images per feature.

    Args:
        metrics: of one extractor (`by_extractor`).
        extractor: the name of their feature space.
        reference: described immediately, unless cached.
        shape: (C, H, W) of the images.
        count: number of images to come.
        cache: see `described`.

    Raises:
        UserError: missing or wrong weights, reference images of another shape, or an unwritable
            cache.
    """

    def __init__(
        self,
        metrics: Sequence[str],
        extractor: str,
        reference: Reference,
        shape: tuple[int, ...],
        *,
        count: int,
        device: torch.device,
        cache: Path | None = None,
    ) -> None:
        self.metrics = list(dict.fromkeys(metrics))
        self.extraction, self._count = Extraction(extractor, device=device), count
        self._heldout = reference.file is None
        self._given = reference.moments if self.extraction.extractor == INCEPTION else {}
        facts = [METRICS[metric] for metric in self.metrics]
        layers = [
            metric.layer
            for metric in facts
            if metric.compares and (metric.keeps == "features" or metric.layer not in self._given)
        ]
        self._real = described(reference, self.extraction, dict.fromkeys(layers), shape, cache)
        self._summed = {metric.layer for metric in facts if metric.keeps == "moments"}
        self._whole = {metric.layer for metric in facts if metric.keeps == "features"}
        self._begin()

    def _begin(self) -> None:
        """Forget all images."""
        self._kept: dict[str, Keeper] = {
            layer: make() for layer, make in KEEPERS.items() if layer in self._summed
        }
        distances = {METRICS[metric].layer for metric in self.metrics if metric in FRECHET}
        self._features: dict[str, list[Tensor]] = {x: [] for x in self._whole | distances}

    def add(self, images_BCHW: Tensor) -> None:
        """Add the next images, uint8 on any device."""
        features = self.extraction(images_BCHW)
        for layer, keeper in self._kept.items():
            keeper.add(features[layer])
        for layer, parts in self._features.items():
            x_BD = features[layer]
            if layer in self._whole or self._tells_spread(x_BD):
                parts.append(x_BD.cpu())

    def _tells_spread(self, x_BD: Tensor) -> bool:
        """Return whether there will be enough images for a standard error."""
        return self._count > IMAGES_A_FEATURE * x_BD.shape[1]

    def scores(self) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Return the metrics by recorded name, and the influences [N] of images on Frechet
        distances of enough images; then reset.

        Raises:
            NotFinite: a metric is not finite.
        """
        features = {layer: torch.cat(parts) for layer, parts in self._features.items() if parts}
        device, extractor = self.extraction.device, self.extraction.extractor
        compared = Compared(features, self._kept, self._real, self._given, device)
        found, influences = {}, {}
        for metric in self.metrics:
            name = sample_metric(metric, extractor, self._count, heldout=self._heldout)
            found[name] = float(MEASURES[metric](compared))
            if not math.isfinite(found[name]):
                raise NotFinite(
                    f"evaluate: {metric} must be finite, got {found[name]}; the features of the"
                    " images are not finite"
                )
            kept = features.get(METRICS[metric].layer) if metric in FRECHET else None
            if kept is not None and self._tells_spread(kept):
                influences[name] = compared.influences(METRICS[metric].layer)
        self._begin()
        return found, influences


def evenly(rows: Tensor, most: int) -> Tensor:
    """Return at most `most` rows, evenly spaced, because rows may be sorted by class."""
    count = min(len(rows), most)
    return rows[torch.arange(count) * len(rows) // count]


class Compared:
    """Statistics of generated and reference images; shared values are computed once.

    Attributes:
        generated: kept features [N, D] by layer, on the CPU.
        reference: features [M, D] of the references by layer.
        given: reference moments by layer from a file.
        device: where distances are computed.
        distances: computed Frechet distances and their gradients, by layer.
    """

    def __init__(
        self,
        generated: Mapping[str, Tensor],
        kept: Mapping[str, Any],
        reference: Mapping[str, Tensor],
        given: Mapping[str, Moments],
        device: torch.device,
    ) -> None:
        self.generated, self.kept, self.device = generated, kept, device
        self.reference, self.given = reference, given
        self.distances = dict[str, tuple[float, Tensor]]()

    def frechet(self, layer: str) -> float:
        """Return the Frechet distance to the references in a layer, in float64."""
        if layer not in self.distances:
            self.distances[layer] = frechet_distance(*self._moments(layer))
        return self.distances[layer][0]

    def influences(self, layer: str) -> Tensor:
        """Return the influence of each image on the Frechet distance in a layer."""
        _, gradient_DD = self.distances[layer]
        return frechet_influences(*self._moments(layer), gradient_DD, self.generated[layer])

    def _moments(self, layer: str) -> tuple[Moments, Moments]:
        """Return the moments of the references and of the generated images."""
        if (moments := self.given.get(layer)) is None:
            x_MD = self.reference[layer].double()
            moments = x_MD.mean(dim=0), x_MD.T.cov()
        mean_D, covariance_DD = (x.to(self.device) for x in moments)
        own = self.kept[layer]
        return (mean_D, covariance_DD), (own.mean_D, own.covariance_DD)

    @functools.cached_property
    def neighbours(self) -> tuple[float, float]:
        """Precision and recall at k = 3."""
        near = evenly(self.reference["pool"], MOST_NEIGHBOURS).to(self.device)
        return precision_recall(self.generated["pool"].to(self.device), near)


MEASURES: Registry[Callable[[Compared], float]] = Registry(
    "metric",
    {
        "fd": lambda compared: compared.frechet("pool"),
        "fd_dinov2": lambda compared: compared.frechet("pool"),
        "fid": lambda compared: compared.frechet("pool"),
        "sfid": lambda compared: compared.frechet("spatial"),
        "kid": lambda c: kernel_distance(c.generated["pool"], c.reference["pool"]),
        "is": lambda compared: compared.kept["logits"].score,
        "is_shuffled": lambda c: shuffled_inception_score(c.generated["logits"]),
        "precision": lambda compared: compared.neighbours[0],
        "recall": lambda compared: compared.neighbours[1],
    },
    METRICS,
)
