"""Metrics of generated images: in which features each is computed, and what they compare with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

from tread_lab.config.decode import settle, unhashed
from tread_lab.config.errors import UserError, lookup
from tread_lab.config.registry import Registry


@dataclass(frozen=True)
class MetricKind:
    """Meaning of a metric's numbers.

    Attributes:
        nature: `quality`, `cost`, or `neither` (no better direction).
        better: `lower`, `higher`, or empty.
        compared: `difference` if the baseline's value can be subtracted, `gap` if the value is
            already a difference, `value` if baselines lack the number.
        label: axis label; empty for the name itself.
        unit: of its values; empty for a number without one.
        digits: of a value without an interval.
        meaning: a short explanation; empty if the name suffices.
    """

    nature: Literal["quality", "cost", "neither"] = "neither"
    better: Literal["lower", "higher", ""] = ""
    compared: Literal["difference", "gap", "value"] = "difference"
    label: str = ""
    unit: str = ""
    digits: int = 4
    meaning: str = ""

    @property
    def sign(self) -> int:
        """Factor that makes lower values better; 0 without a better direction."""
        return {"lower": 1, "higher": -1, "": 0}[self.better]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Requirements and meaning of a metric.

    Attributes:
        features: `inception` (the 2015 network and no other), `dinov2` (ViT-L/14 and no other),
            `own` (the extractor made for the data set and no other), or `any`: the data set's own
            where there is one, else Inception.
        kind: what its numbers mean.
        layer: `pool` (the features before the classifier), `logits`, or Inception's `spatial`
            (seven channels at 17 x 17 places).
        keeps: stored data of generated images: all `features`, or `moments` of constant size (of
            logits, sums per split of the inception score).
        fewest: minimum number of generated images.
        fewest_real: minimum number of real images, if it compares.
        compares: whether real images are needed beside the generated ones.
    """

    features: Literal["inception", "dinov2", "own", "any"]
    kind: MetricKind
    layer: Literal["pool", "logits", "spatial"] = "pool"
    keeps: Literal["features", "moments"] = "features"
    fewest: int = 100
    fewest_real: int = 2
    compares: bool = True

    @property
    def moments_given(self) -> bool:
        """Whether the Inception moments in a reference file suffice."""
        return self.keeps != "features" and self.features != "dinov2"


def _quality(better: Literal["lower", "higher"], label: str = "", meaning: str = "") -> MetricKind:
    """Three digits: another sampling seed moves a metric of samples by a percent or two."""
    return MetricKind("quality", better, label=label, digits=3, meaning=meaning)


def _distance(label: str, features: str) -> MetricKind:
    frechet = "Fréchet distance between features of samples and of real images"
    return _quality("lower", label, f"{frechet}, {features}; lower is better")


_SCORE = "inception score of samples; higher is better"
OWN_FEATURES = {"fashion16": "fashion16-v1"}  # data source -> the extractor made from it

METRICS = Registry(
    "metric",
    {
        "fd": Metric(
            features="own",
            kind=_distance("FD", "in the space that its brackets name"),
            keeps="moments",
        ),
        "fd_dinov2": Metric(
            features="dinov2", kind=_distance("FD-DINOv2", "of DINOv2 ViT-L/14"), keeps="moments"
        ),
        "fid": Metric(
            features="inception", kind=_distance("FID", "of Inception-2015"), keeps="moments"
        ),
        "sfid": Metric(
            features="inception",
            kind=_distance("sFID", "of Inception-2015 at 17 x 17 places"),
            layer="spatial",
            keeps="moments",
        ),
        "kid": Metric(
            features="any",
            kind=_quality("lower", "KID", "kernel distance of the same features"),
        ),
        "is": Metric(
            features="inception",
            kind=_quality("higher", "IS", _SCORE),
            layer="logits",
            keeps="moments",
            compares=False,
        ),
        "is_shuffled": Metric(
            features="inception",
            kind=_quality("higher", "IS, shuffled", _SCORE),
            layer="logits",
            compares=False,
        ),
        "precision": Metric(features="any", kind=_quality("higher"), fewest_real=4),
        "recall": Metric(features="any", kind=_quality("higher"), fewest_real=4),
    },
)


INCEPTION = "inception"
DINOV2 = "dinov2-large"


def extractor_for(metric: str, source: str) -> str:
    """Return the extractor of `metric` for images of the data source `source`.

    Raises:
        UserError: an unknown metric, or `fd` for a source that has no extractor of its own.
    """
    features = lookup(METRICS, metric, "metrics").features
    if features == "own" and source not in OWN_FEATURES:
        raise UserError(
            f"metrics: {metric} requires a feature extractor made for {source!r}, which has none."
            " Try fid, with the Inception-2015 weights."
        )
    own = OWN_FEATURES.get(source, INCEPTION)
    return {"inception": INCEPTION, "dinov2": DINOV2, "own": own, "any": own}[features]


def by_extractor(metrics: Sequence[str], source: str) -> dict[str, tuple[str, ...]]:
    """Return the metrics asked for, grouped by extractor."""
    chosen = {metric: extractor_for(metric, source) for metric in metrics}
    return {
        name: tuple(metric for metric in metrics if chosen[metric] == name)
        for name in dict.fromkeys(chosen.values())
    }


HELDOUT = "heldout"  # the data's own held-out images, where no file is named
# The files that ADM publishes (openai/guided-diffusion, evaluations/README.md), by what they are.
PUBLISHED: Mapping[str, str] = {
    "imagenet64": "VIRTUAL_imagenet64_labeled.npz",
    "imagenet128": "VIRTUAL_imagenet128_labeled.npz",
    "imagenet256": "VIRTUAL_imagenet256_labeled.npz",
    "imagenet512": "VIRTUAL_imagenet512.npz",
    "lsun_bedroom256": "VIRTUAL_lsun_bedroom256.npz",
    "lsun_cat256": "VIRTUAL_lsun_cat256.npz",
    "lsun_horse256": "VIRTUAL_lsun_horse256.npz",
}


def is_reference_file(written: object) -> bool:
    """Return whether a reference is a path, not a name."""
    return isinstance(written, str) and ("/" in written or written.endswith(".npz"))


@dataclass(frozen=True, kw_only=True)
class ReferenceSpec:
    """Reference statistics: an .npz file in the format of ADM's evaluator.

    Shorthand: a name (`imagenet256`), or a path, from which the name follows
    (`VIRTUAL_imagenet256_labeled.npz` is `imagenet256`, `coco.npz` is `coco`).

    Attributes:
        name: name of the data; part of the signature, and unique per file in a lab.
        path: absolute path, not part of the signature. By default the file of this name in
            TREAD_LAB_REFERENCES.
    """

    name: str
    path: str | None = unhashed(None)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", self.name) or self.name == HELDOUT:
            raise UserError(
                f"name: must be letters and digits, got {self.name!r}. Try imagenet256."
            )
        settle(self, path=self.path and str(Path(self.path).expanduser().absolute()))

    @property
    def files(self) -> tuple[str, ...]:
        """Accepted names of the file in a folder."""
        published = PUBLISHED.get(self.name)
        return (f"{self.name}.npz", *([published] if published else []))

    @staticmethod
    def from_shorthand(value: object) -> dict[str, object]:
        """Return the fields of a name or of a path."""
        text = str(value)
        if not is_reference_file(text):
            return {"name": text}
        file = PurePath(text).name
        names = {published: name for name, published in PUBLISHED.items()}
        return {"name": names.get(file, file.removesuffix(".npz")), "path": text}
