"""Early stopping on Ray: ASHA or the median rule judges runs by their gap to the baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule

from tread_lab.specs.errors import lookup
from tread_lab.specs.sweep import StopEarlySpec
from tread_lab.sweep.execution.early_stopping import GAP, RUNG, EarlyStopping
from tread_lab.sweep.execution.ray_callbacks import CallbackErrors

_JUDGED_BY: Mapping[str, Any] = {"time_attr": RUNG, "metric": GAP, "mode": "min"}


def _asha(spec: StopEarlySpec, steps: int) -> ASHAScheduler:
    return ASHAScheduler(
        **_JUDGED_BY,
        max_t=steps,
        grace_period=spec.first_rung(steps),
        reduction_factor=spec.reduction,
        stop_last_trials=False,
    )


def _median(spec: StopEarlySpec, steps: int) -> MedianStoppingRule:
    return MedianStoppingRule(
        **_JUDGED_BY,
        grace_period=spec.first_rung(steps),
        min_samples_required=spec.least,
        min_time_slice=math.inf,  # type: ignore[arg-type] # trials without company are not paused
    )


RULES: Mapping[str, Callable[[StopEarlySpec, int], Any]] = {"asha": _asha, "median": _median}


class EarlyStoppingScheduler(FIFOScheduler):
    """A rule of Ray Tune that is shown what earlier sessions saw, and whose verdicts are noted."""

    def __init__(self, early: EarlyStopping, errors: CallbackErrors) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.early, self.errors = early, errors
        steps = max((steps for steps, _ in early.judged.values()), default=1)
        self.rule = lookup(RULES, early.spec.kind, "stop_early.kind")(early.spec, steps)
        for run, rung, gap in early.history():
            self.rule.on_trial_add(None, EarlierTrial(run))
            self.rule.on_trial_complete(None, EarlierTrial(run), {RUNG: rung, GAP: gap})

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        self.rule.on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if GAP not in result:
            return str(self.CONTINUE)
        decision = str(self.rule.on_trial_result(tune_controller, trial, result))
        if decision == self.STOP:
            with self.errors.collect():
                self.early.stop(result["run"], result[RUNG], result[GAP])
        return decision


@dataclass(frozen=True)
class EarlierTrial:
    """A trial of an earlier session, as far as a rule must know it."""

    trial_id: str
