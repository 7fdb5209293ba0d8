"""Refuses to add runs to a comparison whose others were made with other code, data or weights."""

from __future__ import annotations

from collections.abc import Sequence

from tread_lab.engine.provenance import made_with
from tread_lab.records.lab import Lab
from tread_lab.records.provenance import NOW, Mixture, made_of, mixtures
from tread_lab.specs.errors import UserError
from tread_lab.sweep.trial.task import Task


def mixed(lab: Lab, tasks: Sequence[Task], todo: Sequence[Task]) -> list[Mixture]:
    """What would differ among the runs of `tasks` once `todo` is done with what is here now."""
    if not todo:
        return []
    distinct = {(task.spec.data, task.spec.repa): task.spec for task in todo}
    made = made_of(lab, (task.run for task in tasks))
    return mixtures({**made, NOW: [made_with(spec) for spec in distinct.values()]})


def check_unmixed(found: Sequence[Mixture]) -> None:
    """Refuse the first mixture.

    Raises:
        UserError: names it, and what the user can do.
    """
    for mixture in found:
        raise UserError(
            f"{mixture}; such runs do not compare. --allow-mixed goes on and marks it, another"
            " --root starts afresh"
        )
