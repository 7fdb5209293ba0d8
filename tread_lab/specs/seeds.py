"""Seeds of one cell: trials whose settings are equal but for the seed, whatever axes name them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tread_lab.specs.cell import AnySpec, Cell, Spec, Trial
from tread_lab.specs.signature import settings_signature

Kind = tuple[str, str, str]  # role, settings, and those of the baseline


def settings_of(trials: Iterable[Trial[Spec]]) -> dict[str, str]:
    """Return run -> `settings_signature`, which the seeds of a cell share."""
    specs = {trial.run: trial.spec for trial in trials}
    return {run: settings_signature(spec) for run, spec in specs.items()}


def kind_of(trial: Trial[Spec], settings: dict[str, str]) -> Kind:
    """Return what the seeds of a cell have in common.

    Args:
        settings: `settings_of` the trials and their baselines.
    """
    return trial.role, settings[trial.run], settings.get(trial.baseline or "", "")


def every_cell_has_every_seed(trials: Iterable[Trial[Spec]]) -> bool:
    """Return whether no seed of a cell can be found under another name."""
    seeds: dict[str, set[int]] = {}
    for trial in trials:
        if trial.role == "trial":
            seeds.setdefault(repr(trial.cell), set()).add(trial.seed)
    return len(set(map(frozenset, seeds.values()))) < 2


def with_whole_cells(
    trials: Sequence[Trial[AnySpec]], settings: dict[str, str]
) -> tuple[Trial[AnySpec], ...]:
    """Return the trials; all seeds of a cell have the axis values that any of them has.

    A cell that a plan has twice with one seed stays two cells.
    """
    kinds = [kind_of(trial, settings) for trial in trials]
    count = Counter((kind, trial.seed) for kind, trial in zip(kinds, trials))
    twice = {kind for (kind, _), number in count.items() if number > 1}
    cells: dict[Kind, Cell] = {}
    for kind, trial in zip(kinds, trials):
        cells[kind] = {**trial.cell, **cells.get(kind, {})}
    return tuple(
        trial if kind in twice or trial.cell == cells[kind] else replace(trial, cell=cells[kind])
        for kind, trial in zip(kinds, trials)
    )
