"""Early stopping on Ray: ASHA or the median rule judges runs by their gap to the baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule

from tread_lab.sweep.execution.early_stopping import Early
from tread_lab.sweep.execution.ray_errors import CallbackErrors

RUNG, GAP = "rung", "rung_gap"  # only in results at steps where a trial is judged


class Judge(FIFOScheduler):
    """ASHA or the median rule of Ray Tune, shown what earlier sessions saw; notes its verdicts."""

    def __init__(self, early: Early, errors: CallbackErrors) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.early, self.errors, spec = early, errors, early.spec
        steps = max((steps for steps, _ in early.judged.values()), default=1)
        first = spec.first_rung(steps)
        how: dict[str, Any] = {"time_attr": RUNG, "metric": GAP, "mode": "min"}
        self.rule: Any
        if spec.kind == "asha":
            self.rule = ASHAScheduler(
                **how,
                max_t=steps,
                grace_period=first,
                reduction_factor=spec.reduction,
                stop_last_trials=False,
            )
        else:  # an endless slice: trials that lack company go on instead of being paused
            self.rule = MedianStoppingRule(
                **how,
                grace_period=first,
                min_samples_required=spec.least,
                min_time_slice=math.inf,  # type: ignore[arg-type]
            )
        for run, rung, gap in early.history():
            self.rule.on_trial_add(None, Past(run))
            self.rule.on_trial_complete(None, Past(run), {RUNG: rung, GAP: gap})

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
class Past:
    """A run of an earlier session, as far as a rule must know it."""

    trial_id: str
