"""What early stopping knows of a sweep: who is judged, at which steps, by what, who was stopped."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tread_lab.records import metric_names, stopped_early
from tread_lab.records.lab import Lab
from tread_lab.records.stopped_early import Stopped
from tread_lab.specs.sweep import StopEarlySpec
from tread_lab.sweep.plan.plan import Plan


@dataclass(frozen=True)
class Early:
    """Judges the trials of one sweep by their logs.

    Attributes:
        judged: run -> (its training steps, its baseline or None).
    """

    spec: StopEarlySpec
    lab: Lab
    sweep: str
    judged: Mapping[str, tuple[int, str | None]]

    @staticmethod
    def of(plan: Plan, lab: Lab) -> Early | None:
        """For a plan that stops trials early."""
        if plan.stop_early is None:
            return None
        trials = [trial for trial in plan.possible_trials if trial.role == "trial"]
        judged = {t.run: (t.spec.train.steps, t.baseline) for t in trials}
        baselines = {trial.baseline for trial in trials}
        judged = {run: about for run, about in judged.items() if run not in baselines}
        return Early(plan.stop_early, lab, plan.name, judged)

    def rungs(self, run: str) -> tuple[int, ...]:
        """The steps at which a run is judged; none for a baseline."""
        return self.spec.rungs(self.judged[run][0]) if run in self.judged else ()

    def gap(self, run: str, rung: int) -> float | None:
        """The training loss over the second half of the steps up to a rung, less the baseline's.

        Both see the same images, noise and levels, so that a difference of few steps means
        something. Nothing if the logs do not reach that far.
        """
        mine, baseline = self._losses(run, rung), self.judged[run][1]
        other = dict.fromkeys(mine, 0.0) if baseline is None else self._losses(baseline, rung)
        common = mine.keys() & other.keys()
        if not common:
            return None
        gap = math.fsum(mine[step] - other[step] for step in common) / len(common)
        return gap if math.isfinite(gap) else None

    def history(self) -> Iterator[tuple[str, int, float]]:
        """(run, rung, gap) of runs that have ended or were stopped: what a new session knows."""
        before = stopped_early.read(self.lab.sweep(self.sweep).stopped_path)
        for run in self.judged:
            if run not in before and self.lab.run(run).result() is None:
                continue
            for rung in self.rungs(run):
                if (gap := self.gap(run, rung)) is not None:
                    yield run, rung, gap

    def stop(self, run: str, rung: int, gap: float) -> None:
        """Write down that a run ends here, for this sweep."""
        reason = f"{self.spec.kind} at step {rung}: training gap {gap:+.4f}, others are better"
        stopped_early.append(self.lab.sweep(self.sweep).stopped_path, Stopped(run, rung, reason))

    def _losses(self, run: str, rung: int) -> dict[int, float]:
        return {
            entry.step: entry.value
            for entry in self.lab.run(run).entries()
            if entry.key == metric_names.TRAIN_LOSS and rung / 2 < entry.step <= rung
        }
