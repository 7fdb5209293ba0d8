"""One row per logged value: run, step, key, value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.errors import UserError, suggest


def history_frame(
    lab: Lab, sweep: str | SweepFolder, keys: Iterable[str] | None = None
) -> pd.DataFrame:
    """Return every logged value of every run of a sweep, each run once.

    Args:
        keys: the keys to keep; `None` keeps all.

    Raises:
        UserError: no run has logged one of the keys; suggests a near miss.
    """
    logged: set[str] = set()
    wanted = None if keys is None else set(keys)
    columns: dict[str, list[Any]] = {"run": [], "step": [], "key": [], "value": []}
    folder = lab.known_sweep(sweep) if isinstance(sweep, str) else sweep
    for name in dict.fromkeys(trial.run for trial in folder.plan().trials):
        for entry in lab.run(name).entries():
            logged.add(entry.key)
            if wanted is None or entry.key in wanted:
                values = (name, entry.step, entry.key, entry.value)
                for column, value in zip(columns.values(), values):
                    column.append(value)
    if unknown := sorted((wanted or set()) - logged) if logged else []:
        raise UserError(f"no key {unknown[0]!r} was logged{suggest(unknown[0], sorted(logged))}")
    return pd.DataFrame(columns)
