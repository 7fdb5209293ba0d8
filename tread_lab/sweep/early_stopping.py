"""Early stopping of a sweep: which runs are judged, at which steps, and by which gap."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from tread_lab.config.errors import UserError
from tread_lab.config.run import RunSpec
from tread_lab.config.signature import signature
from tread_lab.config.sweep import StopEarlySpec
from tread_lab.records import metric_names
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.records.sweep_folder import Judgement
from tread_lab.sweep.plan import Plan, pending_tasks
from tread_lab.sweep.run_task import Report


@dataclass(frozen=True)
class EarlyStopping:
    """ASHA (Li et al. 2020) over the records of one sweep: ends runs that are worse than others.

    Attributes:
        judged: run -> (its training steps, its baseline or None).
    """

    spec: StopEarlySpec
    lab: Lab
    sweep: str
    judged: Mapping[str, tuple[int, str | None]]

    @staticmethod
    def of(plan: Plan, lab: Lab, *, again: Collection[str] = ()) -> EarlyStopping | None:
        """Return the judge of a plan's trials; `None` if the plan stops none early.

        No run is judged that others are compared with or start from. Runs of several lengths are
        judged at the same steps, those of the shortest.

        Args:
            again: runs that have ended and are to be run again.

        Raises:
            UserError: no run is so long that it is judged, a run logs no training loss before a
                step at which it is judged, or the training losses of two do not compare.
        """
        if plan.stop_early is None:
            return None
        trials = [trial for trial in plan.possible_trials if trial.role == "trial"]
        needed = {trial.baseline for trial in trials}
        needed |= {signature(parent) for trial in trials for parent in trial.spec.ancestors}
        judged = {
            trial.run: (trial.spec.train.steps, trial.baseline)
            for trial in trials
            if trial.run not in needed
        }
        if not judged:
            return None
        lengths = [steps for steps, _ in judged.values()]
        spec = replace(plan.stop_early, grace=plan.stop_early.first_rung(min(lengths)))
        if plan.stop_early.grace is not None and not spec.rungs(max(lengths)):
            most = max(lengths) // spec.reduction
            raise UserError(
                f"stop_early.grace: must be at most {most} (steps / reduction of the longest run),"
                f" got {spec.grace}"
            )
        _check_logged(spec, (trial.spec for trial in trials if trial.run in judged))
        _check_losses(plan, lab, judged, again)
        return EarlyStopping(spec, lab, plan.name, judged)

    def rungs(self, run: str) -> tuple[int, ...]:
        """Return the steps at which a run is judged; none for a baseline."""
        return self.spec.rungs(self.judged[run][0]) if run in self.judged else ()

    def gap(self, run: str, rung: int) -> float | None:
        """Return the mean training loss up to a rung less the baseline's, `None` without logs and
        where the baseline diverged: beside its loss any trial would seem good.

        The mean is over the logged steps of the second half, in which both runs see the same
        images, noise and levels.
        """
        losses, baseline = self._losses(run, rung), self.judged[run][1]
        if baseline and self.lab.run(baseline).state() is RunState.DIVERGED:
            return None
        references = self._losses(baseline, rung) if baseline else dict.fromkeys(losses, 0.0)
        steps = losses.keys() & references.keys()
        if not steps:
            return None
        gap = math.fsum(losses[step] - references[step] for step in steps) / len(steps)
        return gap if math.isfinite(gap) else None

    def __call__(self, report: Report) -> bool:
        """Return whether a run ends at a report, by the gaps that are on record at this step."""
        if report.phase != "train" or report.step not in self.rungs(report.run):
            return False
        if (gap := self.gap(report.run, report.step)) is None:
            return False
        folder = self.lab.sweep(self.sweep)
        judged = (one for one in folder.judgements() if one.run != report.run)
        others = [one.gap for one in judged if one.step == report.step]
        stop = bool(others) and gap > np.percentile(others, 100 / self.spec.reduction)
        folder.add_judgement(Judgement(report.run, report.step, gap, bool(stop)))
        return bool(stop)

    def _losses(self, run: str, rung: int) -> dict[int, float]:
        return {
            entry.step: entry.value
            for entry in self.lab.run(run).entries()
            if entry.key == metric_names.TRAIN_LOSS and rung / 2 < entry.step <= rung
        }


def _check_losses(plan: Plan, lab: Lab, judged: Collection[str], again: Collection[str]) -> None:
    """Refuse gaps of several losses, such as that of both passes of MDT beside those of one, unless
    every run that is judged has ended, and is not run again."""
    trials = plan.possible_trials
    losses = {t.run: metric_names.parameters(t.spec)["loss"] or "plain" for t in trials}
    pairs = {
        (losses[t.run], losses.get(t.baseline or "", "plain")) for t in trials if t.run in judged
    }
    gaps = {f"{own} less {dense}" if own != dense else "a loss less itself" for own, dense in pairs}
    if len(gaps) < 2:
        return
    pending = (task.run for task in pending_tasks(plan, lab))
    left = (run for run in pending if lab.run(run).result() is None)
    if any(run in judged for run in chain(again, left)):
        raise UserError(
            "stop_early: judges by the training loss less the baseline's, and these do not compare:"
            f" {', '.join(sorted(gaps))}; leave out stop_early, or all but one of them"
        )


def _check_logged(stop: StopEarlySpec, runs: Iterable[RunSpec]) -> None:
    """Refuse a rung in whose second half nothing is logged, which would judge nobody."""
    for steps, every in dict.fromkeys((r.train.steps, r.execution.log_every) for r in runs):
        for rung in stop.rungs(steps):
            if rung // every * every <= rung / 2:
                raise UserError(
                    f"stop_early: judges at step {rung}, and execution.log_every={every} logs no"
                    f" loss in the half before it; log more often, or write"
                    f" stop_early.grace={every}"
                )
