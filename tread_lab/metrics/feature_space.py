"""In which features each metric is computed: Inception's, or those made for a data set."""

from __future__ import annotations

from collections.abc import Sequence

from tread_lab.spec.errors import UserError, suggest
from tread_lab.spec.evaluation import METRICS

INCEPTION = "inception"
OWN = {"fashion16": "fashion16-v1"}  # data source -> the extractor made from it
INCEPTION_ONLY = ("fid", "is")


def extractor_for(metric: str, source: str) -> str:
    """The extractor of `metric` for images of the data source `source`.

    `fid` and `is` mean Inception-2015 and nothing else, `fd` the source's own extractor; the
    others take the source's own where there is one, else Inception.

    Raises:
        UserError: `fd` for a source that has no extractor of its own.
    """
    if metric in INCEPTION_ONLY:
        return INCEPTION
    if metric == "fd" and source not in OWN:
        raise UserError(
            f"metrics: fd needs features made for the data, and {source!r} has none; "
            "ask for fid, with the Inception-2015 weights"
        )
    return OWN.get(source, INCEPTION)


def by_extractor(metrics: Sequence[str], source: str) -> dict[str, tuple[str, ...]]:
    """The metrics asked for, grouped by extractor."""
    chosen = {metric: extractor_for(metric, source) for metric in metrics}
    return {
        name: tuple(metric for metric in metrics if chosen[metric] == name)
        for name in dict.fromkeys(chosen.values())
    }


def check_metrics(metrics: Sequence[str], extractor: str) -> None:
    """Whether `extractor` exists and every metric is defined in its features.

    Raises:
        UserError: not so; a Frechet distance in other features than Inception's is never `fid`.
    """
    known = (INCEPTION, *OWN.values())
    if extractor not in known:
        raise UserError(f"metrics: unknown extractor {extractor!r}{suggest(extractor, known)}")
    for metric in metrics:
        if metric not in METRICS:
            raise UserError(f"metrics: unknown metric {metric!r}{suggest(metric, METRICS)}")
        wrong = "fd" if extractor == INCEPTION else INCEPTION_ONLY
        if metric in wrong:
            raise UserError(f"metrics: {metric} is not defined in the features of {extractor!r}")
