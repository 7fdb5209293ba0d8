"""Every metric of generated images, from what is kept of their features batch by batch."""

# N images, B batch, C channels, H height, W width, D features

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from tread_lab.metrics.extraction import DescribedReference, Extraction, Reference
from tread_lab.metrics.feature_space import check_metrics
from tread_lab.metrics.fidelity import kernel_distance, shuffled_inception_score
from tread_lab.metrics.frechet import frechet_distance
from tread_lab.metrics.inception_score import SplitSums
from tread_lab.metrics.moments import Moments
from tread_lab.metrics.neighbours import precision_recall
from tread_lab.records.metric_names import sample_metric
from tread_lab.specs.metrics import METRICS

MOST_NEIGHBOURS = 10_000  # references that precision and recall look at, as the ADM evaluator does


class Keeper(Protocol):
    """What is kept of the features of one layer: sums, of a size that does not grow."""

    def add(self, x_BD: Tensor) -> None: ...
    def state(self) -> dict[str, Tensor]: ...
    def load(self, state: Mapping[str, Tensor], device: torch.device) -> None: ...


KEEPERS: Mapping[str, Callable[[], Keeper]] = {
    "pool": Moments,
    "spatial": Moments,
    "logits": SplitSums,
}


class Scorer:
    """The metrics of one feature space of generated images that come batch by batch.

    Every image goes through the extractor once, whatever the number of metrics. Metrics that need
    neighbours or subsets keep all features (fp32, 8 KB an image of Inception's); the memory of all
    others does not grow with the number of images.

    Args:
        metrics: of one extractor (`by_extractor`).
        extractor: `inception`, or an extractor shipped for a data set.
        weights: the Inception-2015 file, if not in TREAD_LAB_INCEPTION.

    Raises:
        UserError: unknown or mismatched metrics and extractors, Inception weights that are absent
            or not the published ones.
    """

    def __init__(
        self,
        metrics: Sequence[str],
        extractor: str,
        *,
        device: torch.device,
        weights: Path | None = None,
    ) -> None:
        check_metrics(metrics, extractor)
        self.metrics, self.extraction = (
            metrics,
            Extraction(extractor, device=device, weights=weights),
        )
        facts = [METRICS[metric] for metric in metrics]
        summed = {metric.layer for metric in facts if metric.keeps == "moments"}
        self._kept: dict[str, Keeper] = {
            layer: KEEPERS[layer]() for layer in KEEPERS if layer in summed
        }
        self._whole: list[str] = list(
            dict.fromkeys(m.layer for m in facts if m.keeps == "features")
        )
        self._features: dict[str, list[Tensor]] = {layer: [] for layer in self._whole}

    def add(self, images_BCHW: Tensor) -> None:
        """Take the next images, uint8 on any device.

        Raises:
            UserError: images that the extractor cannot take.
        """
        features = self.extraction(images_BCHW)
        for layer, keeper in self._kept.items():
            keeper.add(features[layer])
        for layer in self._whole:
            self._features[layer].append(features[layer].cpu())

    def take_features(self) -> dict[str, Tensor]:
        """Return the features since the last call where all must be kept, by layer; forget them."""
        taken = {layer: torch.cat(parts) for layer, parts in self._features.items() if parts}
        self._features = {layer: [] for layer in self._whole}
        return taken

    def state(self) -> dict[str, Tensor]:
        """Return the sums so far, on the CPU; `load` goes on from them with equal results."""
        states = {layer: keeper.state() for layer, keeper in self._kept.items()}
        return {f"{layer}/{k}": x for layer, state in states.items() for k, x in state.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from sums of a scorer of the same metrics."""
        for name, keeper in self._kept.items():
            parts = {key.partition("/")[::2]: x for key, x in state.items()}
            own = {key: x for (layer, key), x in parts.items() if layer == name}
            keeper.load(own, self.extraction.device)

    def described(
        self, reference: Reference, shape: tuple[int, ...], cache: Path | None
    ) -> DescribedReference:
        """Return a reference with all features that the metrics need; images have this shape.

        Raises:
            UserError: its images are of another shape, or the cache cannot be written.
        """
        found = DescribedReference(reference, self.extraction, cache)
        comparing = [METRICS[metric] for metric in self.metrics if METRICS[metric].compares]
        layers = [
            metric.layer if metric.keeps == "moments" else "pool"
            for metric in comparing
            if metric.keeps == "features" or found.given(metric.layer) is None
        ]
        found.prepare(list(dict.fromkeys(layers)), shape)
        return found

    def scores(
        self, reference: DescribedReference, taken: Iterable[Mapping[str, Tensor]], count: int
    ) -> dict[str, float]:
        """Return the metrics by the names they are recorded under.

        Args:
            taken: all that `take_features` gave, in order.
            count: the number of images.
        """
        parts = [part for part in taken if part]
        features = {layer: torch.cat([part[layer] for part in parts]) for layer in self._whole}
        compared = Compared(features, self._kept, reference, self.extraction.device)
        extractor, heldout = self.extraction.extractor, reference.reference.heldout
        return {
            sample_metric(metric, extractor, count, heldout=heldout): MEASURES[metric](compared)
            for metric in self.metrics
        }


def score(
    generated: Tensor,
    reference: Reference,
    *,
    metrics: Sequence[str],
    extractor: str,
    cache: Path | None = None,
    weights: Path | None = None,
    device: torch.device | str = "cpu",
) -> dict[str, float]:
    """Return metrics of `generated`, uint8 [N, C, H, W] in memory, by their names in the record.

    Args:
        reference: precision and recall take at most 10,000 of its images, evenly spread; the other
            metrics take all, or the moments that it gives.
        metrics, extractor, weights: as in `Scorer`.
        cache: as in `DescribedReference`.

    Raises:
        UserError: as `Scorer`; images the extractor cannot take.
    """
    scorer = Scorer(metrics, extractor, device=torch.device(device), weights=weights)
    described = scorer.described(reference, tuple(generated.shape[1:]), cache)
    scorer.add(generated)
    return scorer.scores(described, [scorer.take_features()], len(generated))


def evenly(rows: Tensor, most: int) -> Tensor:
    """Return at most `most` rows, spread evenly over all (which may be sorted by class)."""
    count = min(len(rows), most)
    return rows[torch.arange(count) * len(rows) // count]


class Compared:
    """What is known of generated images and of references; what two metrics share is computed once.

    Attributes:
        generated: features [N, D] by layer, on the CPU, where a metric keeps all.
        device: where distances are computed.
    """

    def __init__(
        self,
        generated: Mapping[str, Tensor],
        kept: Mapping[str, Keeper],
        references: DescribedReference,
        device: torch.device,
    ) -> None:
        self.generated, self.kept, self.references = generated, kept, references
        self.device = device

    @property
    def reference(self) -> Mapping[str, Tensor]:
        """Features [M, D] of the references, of the layer `pool` alone."""
        return {"pool": self.references.features("pool")}

    @functools.cache  # noqa: B019
    def frechet(self, layer: str) -> float:
        """Return the Frechet distance in a layer, in float64."""
        moments = self.kept[layer]
        assert isinstance(moments, Moments)
        mean_D, covariance_DD = (x.to(self.device) for x in self.references.moments(layer))
        own = moments.mean_D, moments.covariance_DD
        return frechet_distance(own, (mean_D, covariance_DD))

    @functools.cached_property
    def inception_score(self) -> float:
        """ADM's inception score."""
        sums = self.kept["logits"]
        assert isinstance(sums, SplitSums)
        return sums.score

    @functools.cached_property
    def neighbours(self) -> dict[str, float]:
        """Precision and recall at k = 3."""
        near = evenly(self.reference["pool"], MOST_NEIGHBOURS).to(self.device)
        precision, recall = precision_recall(self.generated["pool"].to(self.device), near)
        return {"precision": precision, "recall": recall}


MEASURES: Mapping[str, Callable[[Compared], float]] = METRICS.code(
    {
        "fd": lambda compared: compared.frechet("pool"),
        "fid": lambda compared: compared.frechet("pool"),
        "sfid": lambda compared: compared.frechet("spatial"),
        "kid": lambda c: kernel_distance(c.generated["pool"], c.reference["pool"]),
        "is": lambda compared: compared.inception_score,
        "is_shuffled": lambda c: shuffled_inception_score(c.generated["logits"]),
        "precision": lambda compared: compared.neighbours["precision"],
        "recall": lambda compared: compared.neighbours["recall"],
    }
)
