"""The learning rate of every step: linear warm-up, then constant or a decay to zero."""

from __future__ import annotations

import math

from tread_lab.spec.run import TrainSpec


def learning_rate(spec: TrainSpec, step: int) -> float:
    """The learning rate of step 0, 1, ..."""
    warm = min(1.0, (step + 1) / (spec.warmup + 1))
    decay = math.sqrt(1 - step / spec.steps) if spec.schedule == "sqrt_decay" else 1.0
    return spec.lr * warm * decay
