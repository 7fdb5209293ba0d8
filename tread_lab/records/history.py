"""Cells that were started under a sweep's name and have left its newest file."""

from __future__ import annotations

from tread_lab.config.cell import AnySpec
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.records.stored_plan import PlanOf


def left_cells(lab: Lab, plan: PlanOf[AnySpec]) -> list[str]:
    """Return the labels of the cells of earlier files, of which no run is in the plan.

    They were tried: a comparison counts them with those of the plan. A cell of which no run was
    started is left out.
    """
    seen, left = {trial.run for trial in plan.trials}, list[str]()
    for cells in reversed(lab.sweep(plan.name).history()):
        for label, runs in cells.items():
            if seen.isdisjoint(runs) and _started(lab, runs):
                left.append(label)
                seen |= {*runs}
    return left


def _started(lab: Lab, runs: list[str]) -> bool:
    return any(lab.run(run).state() is not RunState.PENDING for run in runs)


def left_note(labels: list[str]) -> list[str]:
    """Return a line about the cells that have left the file; none where none has."""
    return [f"left the file, still counted: {'; '.join(labels)}"] if labels else []
