"""Refuses to add runs to a comparison whose others were made with other code, data or weights."""

from __future__ import annotations

from collections.abc import Sequence

from tread_lab.engine.provenance import made_with
from tread_lab.records.lab import Lab
from tread_lab.records.provenance import (
    NOW,
    ProvenanceDifference,
    provenance_differences,
    provenances_of,
)
from tread_lab.specs.errors import UserError
from tread_lab.sweep.trial.task import Task


def differences(
    lab: Lab, tasks: Sequence[Task], todo: Sequence[Task]
) -> list[ProvenanceDifference]:
    """What would differ among the runs of `tasks` once `todo` is done with what is here now."""
    if not todo:
        return []
    distinct = {(task.spec.data, task.spec.repa): task.spec for task in todo}
    made = provenances_of(lab, (task.run for task in tasks))
    return provenance_differences({**made, NOW: [made_with(spec) for spec in distinct.values()]})


def check_same_provenance(differing: Sequence[ProvenanceDifference]) -> None:
    """Refuse runs of several provenances.

    Raises:
        UserError: names it, and what the user can do.
    """
    for difference in differing:
        raise UserError(
            f"{difference}; such runs do not compare. --allow-mixed goes on and marks it, another"
            " --root starts afresh"
        )
