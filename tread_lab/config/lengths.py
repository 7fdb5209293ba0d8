"""What a sweep holds equal, and what makes an earlier step of a run no shorter run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tread_lab.config.fields import field_value

# What a sweep matches -> the question that its comparisons answer.
QUESTIONS = {
    None: "at equal steps",
    "train_flops": "at equal training FLOPs",
    "train_seconds": "at equal device-hours",
}
UNEQUAL = "at unequal steps"  # of a sweep that matches nothing
STEPS = "train.steps"
SPEND = "spend"  # an axis: multiples of what the baseline of the base run spends
# Fields that a file may write as a share of all steps -> what such a one is.
_SHARES = {
    "train.warmup": "a warm-up that is a share of all steps",
    "routes_from": "a routed phase that is a share of all steps",
    "routes_until": "a routed phase that is a share of all steps",
}
_LEAVES = {field.rpartition(".")[2]: field for field in _SHARES}


def written_shares(settings: Any, field: str = "") -> set[tuple[str, float]]:
    """Return the fields that a tree of settings writes as fractions, at whatever depth, with these.

    Args:
        field: that the tree is written for.
    """
    if isinstance(settings, Mapping):
        parts = [
            (item, _LEAVES.get(str(key).rpartition(".")[2], field))
            for key, item in settings.items()
        ]
    elif isinstance(settings, list | tuple):
        parts = [(item, field) for item in settings]
    else:
        return {(field, settings)} if field and isinstance(settings, float) else set()
    return set().union(*(written_shares(item, of) for item, of in parts))


def follows_length(run: Mapping[str, Any], written: Iterable[tuple[str, float]]) -> str:
    """Return what makes a stage of a run differ from a shorter run; "" where nothing does.

    Args:
        run: its tree, which holds a share of all its steps as a number.
        written: `written_shares` of what it was made from.
    """
    train = run["train"]
    if train.get("schedule", "constant") != "constant":
        return f"schedule {train['schedule']}"
    if (train.get("ema") or {}).get("halflife") is not None:
        return "an EMA whose half-life is a share of all steps"
    for field, share in sorted(written):
        value = field_value(run, field)
        if value and round(share * train["steps"]) == value:
            return _SHARES[field]
    return ""
