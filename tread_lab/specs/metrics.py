"""Metrics of generated images by name: in which features each is computed, and from what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tread_lab.specs.errors import UserError, suggest


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What a metric needs.

    Attributes:
        features: `inception` (the 2015 network and no other), `own` (the extractor made for the
            data set and no other), or `any`: the data set's own where there is one, else Inception.
        layer: `pool` (the features before the classifier) or `logits`.
        compares: whether images of the data set are needed beside the generated ones.
    """

    features: Literal["inception", "own", "any"]
    layer: Literal["pool", "logits"] = "pool"
    compares: bool = True


METRICS: dict[str, Metric] = {
    "fd": Metric(features="own"),
    "fid": Metric(features="inception"),
    "kid": Metric(features="any"),
    "is": Metric(features="inception", layer="logits", compares=False),
    "is_shuffled": Metric(features="inception", layer="logits", compares=False),
    "precision": Metric(features="any"),
    "recall": Metric(features="any"),
}


def metric(name: str) -> Metric:
    """The metric of that name.

    Raises:
        UserError: there is none.
    """
    if name not in METRICS:
        raise UserError(f"metrics: unknown metric {name!r}{suggest(name, METRICS)}")
    return METRICS[name]
