"""The words of a page: what dense, a route, a gap and each metric that it shows are."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tread_lab.records.metric_names import metric_kind

TERMS = {
    "dense": "training without routes: every token passes through every block",
    "route i→j": (
        "blocks i to j are skipped by the routed tokens, which come back after block j (TREAD,"
        " arxiv.org/abs/2501.04765)"
    ),
    "s": "selection rate: the share of the tokens that are routed",
    "gap, Δ": (
        "a run's value less that of its dense baseline with the same seed, images and noise; blue"
        " is better, orange worse"
    ),
    "±": "half the width of the 95% interval of a mean; its table says over what",
    "disturbed": (
        "a time a tenth below what FLOPs allow, or a fifth away from those of the other cells:"
        " other work ran beside the run or its baseline, and the time says nothing about a route"
    ),
}


def terms(metrics: Iterable[str], name: Callable[[str], str] = str) -> dict[str, str]:
    """Return the words of every page, and the metrics of one by their `name`, each kind once."""
    first = {metric_kind(metric).meaning: name(metric) for metric in reversed(list(metrics))}
    return TERMS | {word: meaning for meaning, word in reversed(first.items()) if meaning}
