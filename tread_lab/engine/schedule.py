"""The learning rate of every step: linear warm-up, then constant or a decay to zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tread_lab.specs import recipe
from tread_lab.specs.errors import lookup
from tread_lab.specs.recipe import TrainSpec

# name -> factor on the learning rate, given the share of all steps that is done
SCHEDULES: Mapping[str, Callable[[float], float]] = recipe.SCHEDULES.code(
    {"constant": lambda done: 1.0, "sqrt_decay": lambda done: math.sqrt(1 - done)}
)


def learning_rate(spec: TrainSpec, step: int) -> float:
    """Return the learning rate of step 0, 1, ...

    Raises:
        UserError: there is no schedule of that name.
    """
    warm = min(1.0, (step + 1) / (spec.warmup + 1))
    factor = lookup(SCHEDULES, spec.schedule, "train.schedule")
    return spec.lr * warm * factor(step / spec.steps)
