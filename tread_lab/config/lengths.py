"""The length of a run: what sweeps hold equal, what follows it, and what has no effect in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tread_lab.config.errors import UserError
from tread_lab.config.fields import field_value
from tread_lab.config.run import RunSpec

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

NOTICED, REFUSED = 0.05, 0.5  # shares of the initial weights that an EMA still holds at the end


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
    if any(route.get("rate_end") is not None for route in run["routes"]):
        return "a rate that changes over all steps"
    for field, share in sorted(written):
        value = field_value(run, field)
        if value and round(share * train["steps"]) == value:
            return _SHARES[field]
    return ""


def check_treatments(specs: Iterable[RunSpec]) -> None:
    """Refuse runs, or parents of runs, of which a setting has no effect.

    Raises:
        UserError: a warm-up is as long as the run, its routes are never on, or its EMA is mostly
            the initial weights.
    """
    for spec in dict.fromkeys(run for one in specs for run in (*one.ancestors, one)):
        steps, train = spec.train.steps, spec.train
        if not steps:
            continue
        if train.warmup >= steps:
            raise UserError(
                f"train.warmup: must be below train.steps ({steps}), got {train.warmup}."
                " Try train.warmup=0."
            )
        routed = any(routes for _, routes in spec.phases)
        if spec.routes and spec.routes_until != 0 and not routed:  # 0 is a dense run, as meant
            raise UserError(
                f"routes_from: must be below the step {spec.routes_until or steps} at which the"
                f" routes end, got {spec.routes_from}. Try routes_from=0."
            )
        if (held := train.ema.initial(steps)) > REFUSED:
            raise UserError(
                f"train.ema: after {steps} steps the EMA still holds {held:.0%} of the initial"
                " weights. Try a shorter one, or train.ema=0 for the raw weights."
            )


def ema_notices(specs: Iterable[RunSpec]) -> Iterator[str]:
    """Yield a line if EMAs hold more than a small share of the initial weights at the end."""
    trained = [spec.train for spec in specs if spec.train.steps]
    held = max((train.ema.initial(train.steps) for train in trained), default=0.0)
    if held > NOTICED:
        yield f"train.ema: the EMA still holds {held:.0%} of the initial weights at the end"
