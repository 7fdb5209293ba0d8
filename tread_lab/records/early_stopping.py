"""Early stopping of cells (ASHA): their held-out losses at rungs, and which of them goes on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tread_lab.config.errors import UserError
from tread_lab.config.evaluation import HeldoutSpec
from tread_lab.config.labels import AnySpec, ancestors
from tread_lab.records.durable import digest
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import HELDOUT_LOSS
from tread_lab.records.run_folder import RunFolder, list_checkpoints, step_of
from tread_lab.records.run_state import RunState
from tread_lab.records.sweep_folder import PlanOf


@dataclass(frozen=True)
class Standing:
    """Progress of a cell in parts, which end at the rungs and at the end of its runs.

    Attributes:
        begun: number of started parts.
        scores: mean held-out loss over seeds by rung, if all seeds have one; a seed that ended
            without a loss counts as infinite.
        ended, completed: whether all seeds have ended, and have results.
    """

    begun: int = 0
    scores: Mapping[int, float] = field(default_factory=dict)
    ended: bool = False
    completed: bool = False

    @property
    def paused(self) -> bool:
        """Whether the cell waits at a rung for its promotion."""
        return not self.ended and self.begun - 1 in self.scores


def choose(standings: Sequence[Standing], reduction: int, *, quiet: bool) -> int | None:
    """Return the index of the next cell to continue, or `None`.

    Of n cells at a rung the best n // reduction continue, at high rungs first; else a new cell
    starts (Li et al. 2020, algorithm 2). If neither is possible and no cell has a result, the best
    cell at the highest rung continues, so that every sweep has a complete cell.

    Args:
        quiet: whether no part is running.
    """
    best = set[tuple[int, int]]()
    for rung in {rung for standing in standings for rung in standing.scores}:
        reached = ((s.scores[rung], n) for n, s in enumerate(standings) if rung in s.scores)
        ranked = sorted(reached)
        best |= {(rung, n) for _, n in ranked[: len(ranked) // reduction]}
    paused = [(s.begun - 1, n) for n, s in enumerate(standings) if s.paused]
    waiting = [(-r, standings[n].scores[r], n) for r, n in paused]
    waiting = sorted(place for place in waiting if math.isfinite(place[1]))
    promoted = next((n for r, _, n in waiting if (-r, n) in best), None)
    new = next((n for n, standing in enumerate(standings) if not standing.begun), None)
    found = new if promoted is None else promoted
    if found is None and quiet and not any(standing.completed for standing in standings):
        return next((n for *_, n in waiting), None)
    return found


@dataclass(frozen=True)
class EarlyStopping:
    """ASHA over the cells of one sweep and their records.

    All cells share baselines, so losses order them like gaps.

    Attributes:
        rungs: rungs of the shortest run, in steps; others at equal shares of their steps.
        shortest: steps of the shortest run.
        probe: the evaluation of held-out loss, without its step.
        cells: training steps of each cell's runs, in random order.
    """

    lab: Lab
    reduction: int
    rungs: tuple[int, ...]
    shortest: int
    probe: HeldoutSpec
    cells: tuple[Mapping[str, int], ...]

    @staticmethod
    def of(lab: Lab, plan: PlanOf[AnySpec]) -> EarlyStopping | None:
        """Return the early stopping of a plan, or `None`.

        Cells with a run that others are compared with or start from are not stopped.

        Raises:
            UserError: the shortest run has no rung.
        """
        if plan.stop_early is None:
            return None
        needed = {trial.baseline for trial in plan.trials}
        needed |= {run for trial in plan.trials for run, _ in ancestors(trial.spec)}
        cells: dict[str, dict[str, int]] = {}
        for trial in (trial for trial in plan.trials if trial.role == "trial"):
            cells.setdefault(repr(trial.cell), {})[trial.run] = trial.steps
        judged = {digest(name): runs for name, runs in cells.items() if not needed & runs.keys()}
        if not judged:
            return None
        shortest = min(steps for runs in judged.values() for steps in runs.values())
        if not (rungs := plan.stop_early.rungs(shortest)):
            most, got = shortest // plan.stop_early.reduction, plan.stop_early.first_rung(shortest)
            raise UserError(
                f"stop_early.grace: must be at most {most} (steps / reduction of the shortest run),"
                f" got {got}"
            )
        ordered = tuple(judged[name] for name in sorted(judged))
        probe = plan.evaluation_defaults.heldout_loss
        return EarlyStopping(lab, plan.stop_early.reduction, rungs, shortest, probe, ordered)

    def steps(self, length: int) -> list[int]:
        """Return the rungs of a run of `steps` steps."""
        return [max(rung * length // self.shortest, 1) for rung in self.rungs]

    def probe_at(self, length: int, part: int) -> HeldoutSpec | None:
        """Return the evaluation that ends part 1, 2, ... of a run; `None` for the last part."""
        if part > len(self.rungs):
            return None
        return replace(self.probe, step=self.steps(length)[part - 1])

    def standing(self, cell: Mapping[str, int]) -> Standing:
        """Return the progress of a cell from its records."""
        begun, states = 0, list[RunState | None]()
        losses = list[list[float | None]]()
        for run, length in cell.items():
            folder, steps = self.lab.run(run), self.steps(length)
            states.append((folder.result() or {}).get("state"))
            reached = max(map(step_of, list_checkpoints(folder.checkpoints)), default=0)
            reached = length if states[-1] is RunState.COMPLETED else reached
            begun = max(begun, folder.path.exists() + sum(step < reached for step in steps))
            lost = states[-1] not in (None, RunState.COMPLETED)
            losses.append([self._loss(folder, step, math.inf if lost else None) for step in steps])
        means = {
            rung: statistics.fmean(loss for loss in seeds if loss is not None)
            for rung, seeds in enumerate(zip(*losses))
            if None not in seeds
        }
        return Standing(begun, means, None not in states, {*states} == {RunState.COMPLETED})

    def _loss(self, folder: RunFolder, step: int, otherwise: float | None) -> float | None:
        """Return the held-out loss of a run at a step."""
        measured = folder.evaluation(replace(self.probe, step=step)).read()
        return otherwise if measured is None else measured["metrics"].get(HELDOUT_LOSS, math.inf)


def stopped_early(lab: Lab, plan: PlanOf[AnySpec]) -> dict[str, int]:
    """Return the runs ended by early stopping, with their steps.

    Empty until no cell can continue.
    """
    early = EarlyStopping.of(lab, plan)
    if early is None:
        return {}
    standings = [early.standing(cell) for cell in early.cells]
    over = all(standing.paused or standing.ended for standing in standings)
    if not over or choose(standings, early.reduction, quiet=True) is not None:
        return {}
    return {
        run: early.steps(length)[standing.begun - 1]
        for cell, standing in zip(early.cells, standings)
        for run, length in cell.items()
        if standing.paused
    }
