"""A sweep file as Python sees it before it runs: its trials, their data and their cost."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tread_lab.config.data import DataSpec
from tread_lab.config.errors import UserError
from tread_lab.config.labels import run_labels
from tread_lab.config.load import load_sweep as load_file
from tread_lab.config.run import RunSpec
from tread_lab.config.units import amount, counted
from tread_lab.cost.training import cost
from tread_lab.hardware import Devices
from tread_lab.records.early_stopping import stopped_early
from tread_lab.records.lab import Lab, run_states
from tread_lab.sweep.plan import Plan, plan_sweep

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PlannedSweep:
    """A plan in memory, and the lab for its runs."""

    plan: Plan
    lab: Lab

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial: run, label, role, seed, state, baseline, axes, steps, speed-up, FLOPs.

        For a search, the baselines shared by all cells.
        """
        import pandas as pd  # half a second, which a plan in the terminal does without

        from tread_lab.results.cells import plain

        labels = run_labels(self.plan.trials)
        states = run_states(self.lab, labels, stopped_early(self.lab, self.plan))
        rows = [
            {
                "run": trial.run,
                "label": labels[trial.run],
                "role": trial.role,
                "seed": trial.seed,
                "state": states[trial.run],
                "baseline": trial.baseline,
                **{axis: plain(value) for axis, value in trial.cell.items()},
                "steps": trial.spec.train.steps,
                "speedup": cost(trial.spec).speedup,
                "train_flops": float(cost(trial.spec).train_flops),
            }
            for trial in self.plan.trials
        ]
        return pd.DataFrame(rows).convert_dtypes()

    def __repr__(self) -> str:
        plan, runs = self.plan, counted(len(self.plan.tasks), "run")
        costs = f"{amount(plan.train_flops, 'FLOP')}, at most {amount(plan.disk_bytes)} on the disk"
        return f"{plan.name}: {runs} of {plan.experiment}, {costs}"


def load_sweep(
    file: str, *overrides: str, path: str | os.PathLike[str] | None = None
) -> PlannedSweep:
    """Return the plan of a sweep file with `key=value` overrides; nothing is written or run.

    Args:
        file: a path, or the name of a shipped file or of one in ./sweeps.
        path: folder of the lab with finished runs; by default TREAD_LAB_ROOT, else ./lab.

    Raises:
        UserError: the file or an override has a mistake.
    """
    lab = Lab.at(path)
    name, sweep, experiment = load_file(file, overrides)
    plan = plan_sweep(lab, name, sweep, experiment, Devices.here(), DataDigests(lab).named)
    return PlannedSweep(plan, lab)


class DataDigests:
    """Sets the data digests of a run before its signature is computed.

    Args:
        say: called with a message before reading much data.
    """

    def __init__(self, lab: Lab, say: Callable[[str], None] = lambda line: None) -> None:
        self._lab, self._say = lab, say

    def named(self, spec: RunSpec) -> RunSpec:
        """Return a run with the digests of its data and of its parents' data."""
        if spec.init_from is not None and spec.parent is not None:
            spec = replace(spec, init_from=replace(spec.init_from, run=self.named(spec.parent)))
        if spec.data.is_embedded or spec.data.digest is not None:
            return spec
        return replace(spec, data=replace(spec.data, digest=self._digest(spec.data)))

    @functools.cache  # noqa: B019
    def _digest(self, data: DataSpec) -> str | None:
        """Return the digest of data, `None` where they cannot be read: that is refused later."""
        from tread_lab.data.source import content_digest  # torch

        try:
            return content_digest(data, self._lab.root / "cache", self._say)
        except UserError:
            return None
