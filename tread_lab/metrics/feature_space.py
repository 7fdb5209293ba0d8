"""In which features each metric is computed: Inception's, or those made for a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tread_lab.specs.errors import UserError, lookup, suggest
from tread_lab.specs.metrics import METRICS

INCEPTION = "inception"
OWN = {"fashion16": "fashion16-v1"}  # data source -> the extractor made from it


@dataclass(frozen=True, kw_only=True)
class FeatureSpace:
    """A network whose features are compared.

    Attributes:
        channels: numbers of channels of the images that it takes.
        layers: its own names of the layers `pool` and `logits`; ADM's own for Inception.
        model: the name that torch-fidelity knows it by.
    """

    channels: tuple[int, ...]
    layers: Mapping[str, str]
    model: str


EXTRACTORS: dict[str, FeatureSpace] = {
    INCEPTION: FeatureSpace(
        channels=(1, 3),
        layers={"pool": "2048", "logits": "logits_unbiased"},
        model="inception-v3-compat",
    ),
    "fashion16-v1": FeatureSpace(
        channels=(1,), layers={"pool": "features", "logits": "logits"}, model="fashion16-v1"
    ),
}


def feature_space(name: str) -> FeatureSpace:
    """The features of the extractor of that name.

    Raises:
        UserError: there is none.
    """
    if name not in EXTRACTORS:
        raise UserError(f"metrics: unknown extractor {name!r}{suggest(name, EXTRACTORS)}")
    return EXTRACTORS[name]


def extractor_for(metric: str, source: str) -> str:
    """The extractor of `metric` for images of the data source `source`.

    Raises:
        UserError: an unknown metric, or `fd` for a source that has no extractor of its own.
    """
    features = lookup(METRICS, metric, "metrics").features
    if features == "own" and source not in OWN:
        raise UserError(
            f"metrics: {metric} needs features made for the data, and {source!r} has none; "
            "ask for fid, with the Inception-2015 weights"
        )
    return INCEPTION if features == "inception" else OWN.get(source, INCEPTION)


def by_extractor(metrics: Sequence[str], source: str) -> dict[str, tuple[str, ...]]:
    """The metrics asked for, grouped by extractor."""
    chosen = {metric: extractor_for(metric, source) for metric in metrics}
    return {
        name: tuple(metric for metric in metrics if chosen[metric] == name)
        for name in dict.fromkeys(chosen.values())
    }


def check_metrics(metrics: Sequence[str], name: str) -> None:
    """Whether the extractor `name` exists and every metric is defined in its features.

    Raises:
        UserError: not so; a Frechet distance in other features than Inception's is never `fid`.
    """
    feature_space(name)
    wrong = "own" if name == INCEPTION else "inception"
    for metric in metrics:
        if lookup(METRICS, metric, "metrics").features == wrong:
            raise UserError(f"metrics: {metric} is not defined in the features of {name!r}")
