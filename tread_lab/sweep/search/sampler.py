"""Samplers of a search: suggest the next cell from observations, and store the Optuna study."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from tread_lab.records.metric_names import lower_is_better
from tread_lab.specs.axes import Space
from tread_lab.specs.cell import Cell
from tread_lab.specs.errors import lookup
from tread_lab.specs.sweep import SearchSpec

Facts = Callable[[Cell], dict[str, Any]]


@dataclass(frozen=True)
class Observation:
    """What is known of a suggested cell.

    Attributes:
        cell: its number in the space.
        state: measured (with a value for each objective), running, bad (it diverged or was stopped
            early: worse than the others) or failed (nothing is known).
        notes: what the sampler wrote down when it chose the cell.
    """

    cell: int
    state: Literal["measured", "running", "bad", "failed"] = "running"
    values: tuple[float, ...] | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        return self.state != "running"


@dataclass(frozen=True)
class SamplerKind:
    """What belongs to one sampler.

    Attributes:
        make: the sampler of Optuna for a search and the seed of one suggestion.
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
    "nsgaii": SamplerKind(
        lambda search, seed: NSGAIISampler(seed=seed, population_size=max(search.startup, 2))
    ),
}


def propose(
    search: SearchSpec,
    objectives: Sequence[str],
    space: Space,
    observations: Sequence[Observation],
) -> tuple[int, dict[str, Any]] | None:
    """Return the number of the next cell and the sampler's notes; `None` if no cell is left.

    The result is a function of the arguments alone: every suggestion has a sampler of its own,
    whose seed is drawn from (search.seed, number of the trial) and which sees the observations as a
    study in memory.

    Raises:
        UserError: there is no such sampler.
    """
    kind = lookup(SAMPLERS, search.sampler, "search.sampler")
    free = set(range(len(space))) - {observation.cell for observation in observations}
    if not free:
        return None
    with _quiet():
        study = optuna.create_study(directions=directions(objectives))
        study.add_trials([_trial(space, observation) for observation in observations])
        seed = np.random.SeedSequence([search.seed, len(observations)]).generate_state(1)[0]
        study.sampler = kind.make(search, int(seed))
        for _ in range(kind.draws):
            trial = study.ask(_box(space))
            cell = space.number_at(trial.params)
            notes = _notes(study.get_trials(deepcopy=False)[-1])
            if cell in free:
                return cell, notes
            study.tell(trial, state=TrialState.FAIL)
    return space.nearest(trial.params, free), notes


def directions(objectives: Sequence[str]) -> list[Literal["minimize", "maximize"]]:
    """Return for each objective whether a lower or a higher value is better."""
    return ["minimize" if lower_is_better(name) else "maximize" for name in objectives]


def _notes(trial: FrozenTrial) -> dict[str, Any]:
    """Return the generation of a genetic search, without where the sampler looked first."""
    attributes = trial.system_attrs.items()
    return {key: value for key, value in attributes if "relative_params" not in key}


def _box(space: Space) -> dict[str, BaseDistribution]:
    """Return the box of `space` as distributions that never change, which joint samplers need."""
    return {
        c.axis: CategoricalDistribution(c.names) if c.names else FloatDistribution(0.0, 1.0)
        for c in space.coordinates
    }


_STATES = {
    "measured": TrialState.COMPLETE,
    "running": TrialState.RUNNING,
    "bad": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


def _trial(space: Space, observation: Observation) -> FrozenTrial:
    return create_trial(
        state=_STATES[observation.state],
        values=observation.values,
        params=dict(space.point(observation.cell)),
        distributions=_box(space),
        system_attrs=dict(observation.notes),
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's log lines and its warnings of experimental features."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


class StoredStudy:
    """The Optuna study in `study.db`: a view of the suggestions and observations of a search.

    The study is named like its sweep; its parameters are the axes with their own values. A file
    that does not agree with the records is made anew.

    Args:
        facts: what the study shows of a cell beside its parameters.
    """

    def __init__(
        self, path: Path, name: str, objectives: Sequence[str], space: Space, facts: Facts
    ) -> None:
        self.path, self.name, self.objectives = path, name, objectives
        self.space, self.facts = space, facts
        self._study: optuna.Study | None = None
        self._states: list[TrialState] = []  # of the trials in the study

    def show(self, observations: Sequence[Observation]) -> None:
        """Make the trials of the study equal to `observations`."""
        with _quiet():
            try:
                self._show(observations)
            except Exception:  # a damaged or older file, which holds nothing else
                self._study = None
                self.path.unlink(missing_ok=True)
                self._show(observations)

    def _show(self, observations: Sequence[Observation]) -> None:
        study = self._study = self._study or self._opened(observations)
        for number, observation in enumerate(observations):
            state = _STATES[observation.state]
            if number == len(self._states):
                study.add_trial(self._frozen(observation))
                self._states.append(state)
            elif state != self._states[number]:
                study.tell(number, observation.values, state=state)
                self._states[number] = state

    def _opened(self, observations: Sequence[Observation]) -> optuna.Study:
        """Return the stored study.

        Raises:
            ValueError: its trials are not those of the first observations.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        study = optuna.create_study(
            storage=f"sqlite:///{self.path}",
            study_name=self.name,
            directions=directions(self.objectives),
            load_if_exists=True,
        )
        study.set_metric_names(list(self.objectives))
        stored_trials = study.get_trials(deepcopy=False)
        self._states = [trial.state for trial in stored_trials]
        params = [self._params(observation) for observation in observations[: len(stored_trials)]]
        if [trial.params for trial in stored_trials] != params:
            raise ValueError("other trials")
        for trial, observation in zip(stored_trials, observations):
            if trial.state not in (TrialState.RUNNING, _STATES[observation.state]):
                raise ValueError("another outcome")
        return study

    def _params(self, observation: Observation) -> dict[str, Any]:
        cell = self.space.cells[observation.cell]
        return {axis: _param(cell.get(axis)) for axis in self.space.axes}

    def _frozen(self, observation: Observation) -> FrozenTrial:
        return create_trial(
            state=_STATES[observation.state],
            values=observation.values,
            params=self._params(observation),
            distributions={axis: self._distribution(axis) for axis in self.space.axes},
            user_attrs=self.facts(self.space.cells[observation.cell]),
        )

    def _distribution(self, axis: str) -> BaseDistribution:
        """Return the distribution over all values of an axis, whatever the other axes are."""
        values = list({repr(c.get(axis)): _param(c.get(axis)) for c in self.space.cells}.values())
        types = set(map(type, values))
        if types == {int}:
            steps = math.gcd(*(v - min(values) for v in values))
            return IntDistribution(min(values), max(values), step=max(steps, 1))
        if types <= {int, float}:
            return FloatDistribution(min(values), max(values))
        return CategoricalDistribution(values)


def _param(value: Any) -> Any:
    """Return a value as a study can store it."""
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
