"""Matching: every trial trains as many steps as cost what its baseline costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tread_lab.specs.errors import UserError, shown
from tread_lab.specs.evaluation_steps import BASELINE
from tread_lab.specs.fields import dotted
from tread_lab.specs.recipe import TrainSpec
from tread_lab.specs.run import RunSpec

# What a sweep matches -> the question that its comparisons answer.
QUESTIONS = {
    None: "at equal steps",
    "train_flops": "at equal training FLOPs",
    "train_seconds": "at equal device-hours",
}
UNEQUAL = "at unequal steps"  # of a sweep that matches nothing
STEPS = "train.steps"
SPEND = "spend"  # an axis: multiples of what the baseline of the base run spends
Price = Callable[[RunSpec], float]  # what all training steps of a run cost


def matched_steps(price: Callable[[int], float], spent: float, steps: int) -> int:
    """Return the steps whose price is nearest to `spent`.

    Args:
        price: of a run of so many steps; it rises with them.
        steps: where the search starts, at least 1.
    """
    for _ in range(8):  # one is enough where every step costs the same
        nearer = max(1, round(steps * spent / price(steps)))
        if nearer == steps:
            break
        steps = nearer
    near = range(max(1, steps - 1), steps + 2)
    return min(near, key=lambda count: abs(price(count) - spent))


def steps_off(price: Price, run: RunSpec, baseline: RunSpec) -> float:
    """Return by how many of its own steps a run spends more than its baseline; negative: less."""
    return (price(run) - price(baseline)) * run.train.steps / price(run)


def check_axis(key: str, fields: Mapping[str, Any], path: str, match: str | None) -> None:
    """Refuse an axis that decides steps where the sweep's `match` does, and `spend` without it.

    Args:
        fields: that the axis sets.
    """
    if match is None and key == SPEND:
        raise UserError(f"{path}: of what? say `match: train_flops` in the sweep file")
    if match is not None and any(name.endswith(STEPS) for name, _ in dotted(fields)):
        raise UserError(
            f"{path}: `match: {match}` decides the steps already; `{SPEND}: [0.5, 1, 2]` varies"
            " what baseline and trial spend"
        )


def check_spend(value: Any) -> float:
    """Return a multiple of what is spent.

    Raises:
        UserError: it is no positive number.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < float("inf"):
        raise UserError(f"{SPEND}: expected a positive number, got {shown(value)}")
    return float(value)


def baseline_step(pairs: Iterable[tuple[RunSpec, RunSpec]]) -> int:
    """Return the step `at baseline`: the one at which the baselines of all trials end.

    Args:
        pairs: the run of every trial and that of its baseline.

    Raises:
        UserError: they end at several, or an earlier step of a trial is no shorter run.
    """
    ends = set()
    for trial, baseline in pairs:
        ends.add(baseline.train.steps)
        for train in (trial.train, baseline.train):
            if reason := follows_length(train):
                raise UserError(
                    f"evaluate: `at {BASELINE}` compares at equal steps, and under {reason} an"
                    " earlier step is no shorter run; say `fixed: {train: {schedule: constant,"
                    " ema: 0.97}}`"
                )
    if len(ends) != 1:
        some = ", ".join(map(str, sorted(ends))) or "no"
        raise UserError(f"evaluate: `at {BASELINE}` needs one length of baselines, got {some}")
    return ends.pop()


def follows_length(train: TrainSpec | Mapping[str, Any]) -> str:
    """Return what makes a stage of a run differ from a shorter run; "" where nothing does."""
    tree = dataclasses.asdict(train) if isinstance(train, TrainSpec) else train
    if tree.get("schedule", "constant") != "constant":
        return f"schedule {tree['schedule']}"
    halflife = (tree.get("ema") or {}).get("halflife")
    return "" if halflife is None else "an EMA whose half-life is a share of all steps"
