"""Samplers of a search: suggest the next cell from observations."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import TrialState, create_trial

from tread_lab.config.errors import lookup
from tread_lab.config.sweep import SearchSpec
from tread_lab.records.metric_names import lower_is_better
from tread_lab.sweep.search.space import Space


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
            study.add_trial(
                create_trial(
                    state=_STATES[o.state],
                    values=o.values,
                    params=point,
                    distributions=_box(space),
                )
            )
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
