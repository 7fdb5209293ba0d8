"""In which features each metric is computed: Inception's, DINOv2's, or those of a data set."""

from __future__ import annotations

from collections.abc import Sequence

from tread_lab.specs.errors import UserError, lookup
from tread_lab.specs.metrics import METRICS, OWN_FEATURES

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
            f"metrics: {metric} needs features made for the data, and {source!r} has none; "
            "ask for fid, with the Inception-2015 weights"
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
