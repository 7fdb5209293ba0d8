"""Which cell to try next, from what is known; and the study that optuna-dashboard opens."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
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
from tread_lab.specs.search import SearchSpec
from tread_lab.specs.search_space import Space

_REDRAWS = 12  # suggestions of cells that were tried already, before the nearest new one is taken


@dataclass(frozen=True)
class Observation:
    """A cell that was asked for and what is known of it.

    Attributes:
        cell: its number in the space.
        state: told (with a value for each objective), running, bad (it diverged or was stopped
            early: worse than the others) or failed (nothing is known).
        notes: what the sampler wrote down when it chose the cell.
    """

    cell: int
    state: Literal["measured", "running", "bad", "failed"] = "running"
    values: tuple[float, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)


def propose(
    search: SearchSpec, objectives: Sequence[str], space: Space, known: Sequence[Observation]
) -> tuple[int, dict[str, Any]] | None:
    """The number of the next cell and the sampler's notes; nothing if every cell was asked for.

    A function of its arguments alone: the sampler is made anew for each question with a seed drawn
    from (search.seed, number of the trial), and sees the trials so far in a study in memory.
    """
    free = set(range(len(space))) - {entry.cell for entry in known}
    if not free:
        return None
    with _quiet():
        study = optuna.create_study(directions=directions(objectives))
        study.add_trials([_trial(space, entry) for entry in known])
        seed = np.random.SeedSequence([search.seed, len(known)]).generate_state(1)[0]
        study.sampler = _sampler(search, int(seed))
        for _ in range(_REDRAWS if search.sampler != "gp" else 2):
            trial = study.ask(_box(space))
            cell = space.number_at(trial.params)
            notes = _notes(study.get_trials(deepcopy=False)[-1])
            if cell in free:
                return cell, notes
            study.tell(trial, state=TrialState.FAIL)
    return space.nearest(trial.params, free), notes


def directions(objectives: Sequence[str]) -> list[Literal["minimize", "maximize"]]:
    """Which way each objective is to go."""
    return ["minimize" if lower_is_better(name) else "maximize" for name in objectives]


def _notes(trial: FrozenTrial) -> dict[str, Any]:
    """The generation of a genetic search; where a sampler looked before the cell was settled is
    left out."""
    attributes = trial.system_attrs.items()
    return {key: value for key, value in attributes if "relative_params" not in key}


def _sampler(search: SearchSpec, seed: int) -> BaseSampler:
    if search.sampler == "random":
        return RandomSampler(seed=seed)
    if search.sampler == "gp":
        return GPSampler(seed=seed, n_startup_trials=search.startup)
    if search.sampler == "nsgaii":
        return NSGAIISampler(seed=seed, population_size=max(search.startup, 2))
    return TPESampler(seed=seed, n_startup_trials=search.startup, multivariate=True)


def _box(space: Space) -> dict[str, BaseDistribution]:
    """The box of `space` as distributions that never change, which joint samplers need."""
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


def _trial(space: Space, entry: Observation) -> FrozenTrial:
    return create_trial(
        state=_STATES[entry.state],
        values=list(entry.values) if entry.state == "measured" else None,
        params=dict(space.point(entry.cell)),
        distributions=_box(space),
        system_attrs=dict(entry.notes),
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's log lines and its notes on what is experimental."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)


@dataclass(frozen=True)
class StudyTrial:
    """One trial as the stored study shows it."""

    known: Observation
    facts: Mapping[str, Any]


class StoredStudy:
    """The study in `study.db`: a view of what was asked and told, made anew where it is not right.

    The study is named like its sweep; its parameters are the axes with their own values.
    """

    def __init__(self, path: Path, name: str, objectives: Sequence[str], space: Space) -> None:
        self.path, self.name, self.objectives, self.space = path, name, objectives, space
        self._study: optuna.Study | None = None
        self._states: list[TrialState] = []  # of the trials in the study

    def show(self, trials: Sequence[StudyTrial]) -> None:
        """Make the study equal to `trials`."""
        with _quiet():
            try:
                self._show(trials)
            except Exception:  # a damaged or older file: it holds nothing that is not in `trials`
                self._study = None
                self.path.unlink(missing_ok=True)
                self._show(trials)

    def _show(self, trials: Sequence[StudyTrial]) -> None:
        study = self._study = self._study or self._opened(trials)
        for number, shown in enumerate(trials):
            state = _STATES[shown.known.state]
            if number == len(self._states):
                study.add_trial(self._frozen(shown))
                self._states.append(state)
            elif state != self._states[number]:
                values = shown.known.values if shown.known.state == "measured" else None
                study.tell(number, values, state=state)
                self._states[number] = state

    def _opened(self, trials: Sequence[StudyTrial]) -> optuna.Study:
        """The study as it stands, if it is the beginning of `trials`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        study = optuna.create_study(
            storage=f"sqlite:///{self.path}",
            study_name=self.name,
            directions=directions(self.objectives),
            load_if_exists=True,
        )
        study.set_metric_names(list(self.objectives))
        there = study.get_trials(deepcopy=False)
        self._states = [trial.state for trial in there]
        if [t.params for t in there] != [self._params(s) for s in trials[: len(there)]]:
            raise ValueError("other trials")
        for trial, shown in zip(there, trials):
            if trial.state not in (TrialState.RUNNING, _STATES[shown.known.state]):
                raise ValueError("another outcome")
        return study

    def _params(self, shown: StudyTrial) -> dict[str, Any]:
        cell = self.space.cells[shown.known.cell]
        return {axis: _param(cell.get(axis)) for axis in self.space.axes}

    def _frozen(self, shown: StudyTrial) -> FrozenTrial:
        told = shown.known.state == "measured"
        return create_trial(
            state=_STATES[shown.known.state],
            values=list(shown.known.values) if told else None,
            params=self._params(shown),
            distributions={axis: self._distribution(axis) for axis in self.space.axes},
            user_attrs=dict(shown.facts),
        )

    def _distribution(self, axis: str) -> BaseDistribution:
        """All values of an axis, whatever the others are."""
        values = list({repr(c.get(axis)): _param(c.get(axis)) for c in self.space.cells}.values())
        if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
            steps = math.gcd(*(v - min(values) for v in values))
            return IntDistribution(min(values), max(values), step=max(steps, 1))
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            return FloatDistribution(min(values), max(values))
        return CategoricalDistribution(values)


def _param(value: Any) -> Any:
    """A value as a study may hold it."""
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
