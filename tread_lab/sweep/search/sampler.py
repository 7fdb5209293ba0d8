"""Samplers of a search: suggest the next cell from observations, and store the Optuna study."""

from __future__ import annotations

import contextlib
import functools
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from tread_lab.records.durable import replacing
from tread_lab.records.metric_names import lower_is_better
from tread_lab.specs.cell import Cell
from tread_lab.specs.errors import lookup
from tread_lab.specs.sweep import SearchSpec
from tread_lab.sweep.search.space import Space

Facts = Callable[[Cell], dict[str, Any]]


@dataclass(frozen=True)
class Observation:
    """What is known of a suggested cell.

    Attributes:
        cell: its number in the space.
        state: measured (with a value for each objective), running, bad (it diverged or was stopped
            early: worse than the others) or failed (nothing is known).
    """

    cell: int
    state: Literal["measured", "running", "bad", "failed"] = "running"
    values: tuple[float, ...] | None = None

    @property
    def over(self) -> bool:
        return self.state != "running"


@dataclass(frozen=True)
class SamplerKind:
    """The sampler of Optuna for a search and the seed of one suggestion.

    Attributes:
        draws: suggestions at most of cells that were tried already, before the nearest new cell is
            taken.
    """

    make: Callable[[SearchSpec, int], BaseSampler]
    draws: int = 12


SAMPLERS: Mapping[str, SamplerKind] = {
    "tpe": SamplerKind(
        lambda search, seed: TPESampler(
            seed=seed, n_startup_trials=search.startup, multivariate=True
        )
    ),
    "gp": SamplerKind(
        lambda search, seed: GPSampler(seed=seed, n_startup_trials=search.startup), draws=2
    ),
    "random": SamplerKind(lambda search, seed: RandomSampler(seed=seed)),
}


def propose(
    search: SearchSpec,
    objectives: Sequence[str],
    space: Space,
    observations: Sequence[Observation],
) -> int:
    """Return the number of the next cell, which is none of those that were tried.

    The result is a function of the arguments alone: every suggestion has a sampler of its own,
    whose seed is drawn from (search.seed, number of the trial) and which sees the observations as a
    study in memory, a bad one with the worst values of the others: `gp` learns from values alone.

    Raises:
        UserError: there is no such sampler.
    """
    kind = lookup(SAMPLERS, search.sampler, "search.sampler")
    free = set(range(len(space))) - {observation.cell for observation in observations}
    worst = _worst_values(objectives, observations)
    with quiet():
        study = optuna.create_study(directions=directions(objectives))
        for o in observations:
            point = dict(space.point(o.cell))
            if o.state == "bad" and worst is not None:
                o = Observation(o.cell, "measured", worst)
            study.add_trial(_trial(o, point, _box(space)))
        seed = np.random.SeedSequence([search.seed, len(observations)]).generate_state(1)[0]
        study.sampler = kind.make(search, int(seed))
        for _ in range(kind.draws):
            trial = study.ask(_box(space))
            cell = space.number_at(trial.params)
            if cell in free:
                return cell
            study.tell(trial, state=TrialState.FAIL)
    return space.nearest(trial.params, free)


def _worst_values(
    objectives: Sequence[str], observations: Sequence[Observation]
) -> tuple[float, ...] | None:
    """Return the worst value of each objective, `None` before any cell is measured."""
    measured = zip(*(o.values for o in observations if o.values is not None))
    pairs = zip(objectives, measured)
    return tuple(max(v) if lower_is_better(name) else min(v) for name, v in pairs) or None


def directions(objectives: Sequence[str]) -> list[Literal["minimize", "maximize"]]:
    """Return for each objective whether a lower or a higher value is better."""
    return ["minimize" if lower_is_better(name) else "maximize" for name in objectives]


def _box(space: Space) -> dict[str, BaseDistribution]:
    """Return the box of `space` as distributions that never change, which joint samplers need."""
    return {
        axis: CategoricalDistribution(names) if names else FloatDistribution(0.0, 1.0)
        for axis, names in space.coordinates.items()
    }


_STATES = {
    "measured": TrialState.COMPLETE,
    "running": TrialState.RUNNING,
    "bad": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


def _trial(
    observation: Observation,
    params: dict[str, Any],
    distributions: dict[str, BaseDistribution],
    facts: dict[str, Any] | None = None,
) -> FrozenTrial:
    """Return an observation as a study holds it, with what it shows beside."""
    return create_trial(
        state=_STATES[observation.state],
        values=observation.values,
        params=params,
        distributions=distributions,
        user_attrs=facts,
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's log lines and its warnings of experimental features."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def store_study(
    path: Path,
    name: str,
    objectives: Sequence[str],
    space: Space,
    observations: Sequence[Observation],
    facts: Facts,
) -> None:
    """Write the Optuna study of a search: its parameters are the axes with their own values, and
    `facts` tell what it shows of a cell beside them.
    """
    distributions = {axis: distribution(space, axis) for axis in space.axes}
    with quiet(), replacing(path) as temporary:
        temporary.write_bytes(_empty_database())
        storage = RDBStorage(
            f"sqlite:///{temporary}", skip_compatibility_check=True, skip_table_creation=True
        )
        study = optuna.create_study(
            storage=storage, study_name=name, directions=directions(objectives)
        )
        study.set_metric_names(list(objectives))
        for observation in observations:
            cell = space.cells[observation.cell]
            params = {axis: _param(cell.get(axis)) for axis in space.axes}
            study.add_trial(_trial(observation, params, distributions, facts(cell)))
        storage.remove_session()


@functools.cache
def _empty_database() -> bytes:
    """Return Optuna's database without a study: its tables take longer than what they hold."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.db"
        RDBStorage(f"sqlite:///{path}").remove_session()
        return path.read_bytes()


def distribution(space: Space, axis: str) -> BaseDistribution:
    """Return the distribution over all values of an axis, whatever the other axes are."""
    values = list({repr(c.get(axis)): _param(c.get(axis)) for c in space.cells}.values())
    types = set(map(type, values))
    if types == {int}:
        steps = math.gcd(*(v - min(values) for v in values))
        return IntDistribution(min(values), max(values), step=max(steps, 1))
    if types <= {int, float}:
        return FloatDistribution(min(values), max(values), log=_is_log(values))
    return CategoricalDistribution(values)


def _is_log(values: Sequence[float]) -> bool:
    """Return whether positive values lie further apart the larger they are."""
    steps = np.diff(sorted(values))
    return min(values) > 0 and len(steps) > 1 and bool(steps[-1] > 2 * steps[0])


def _param(value: Any) -> Any:
    """Return a value as a study can store it."""
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
