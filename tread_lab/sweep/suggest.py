"""Suggests the cells of a search, one when a slot is free, and reads the values of ended ones."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import TrialState, create_trial

from tread_lab.config.errors import UserError, lookup, suggest
from tread_lab.config.evaluation import EvaluationSpec
from tread_lab.config.labels import Spec, Trial
from tread_lab.config.run import RunSpec
from tread_lab.config.signature import signature
from tread_lab.config.sweep import SearchSpec
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import lower_is_better
from tread_lab.records.run_state import RunState
from tread_lab.records.sweep_folder import Suggestion
from tread_lab.results.gaps import run_gaps
from tread_lab.results.smooth_map import FEWEST, smooth_map
from tread_lab.sweep.plan import Plan
from tread_lab.sweep.search_space import Space
from tread_lab.sweep.task import ListQueue, Task

TINY = 1e-9  # probability of what the map excludes


class SearchQueue:
    """Queue of baseline runs, then of suggested cells.

    Suggestions are recorded before their runs start. Open suggestions of earlier sessions come
    first.
    """

    stop = False

    def __init__(self, lab: Lab, plan: Plan) -> None:
        assert plan.search_spec is not None
        self.lab, self.plan, self.folder = lab, plan, lab.sweep(plan.name)
        self.search, self.space = plan.search_spec, Space(plan.space)
        self._wanted = min(self.search.trials, plan.most)
        self._ended: set[str] = set()  # runs, in this session
        self._queue = ListQueue(plan.open_tasks(lab))
        self.observations: list[Observation] = []  # of the suggested cells, in order
        for suggestion in self.folder.suggestions():
            self._add(suggestion)
        self._observe()

    @property
    def _suggests_no_more(self) -> bool:
        return len(self.observations) >= self._wanted

    @property
    def done(self) -> bool:
        return self._suggests_no_more and self._queue.done

    def next(self) -> Task | None:
        while (task := self._queue.next()) is None and self._may_suggest():
            self._suggest()
        return task

    def ended(self, task: Task) -> None:
        self._queue.ended(task)
        self._ended.add(task.run)
        self._observe()

    def _may_suggest(self) -> bool:
        """Return whether a slot is free and the results that a suggestion needs are known."""
        if self._suggests_no_more:
            return False
        return all(observation.over for observation in self.observations[: self._needed])

    @property
    def _needed(self) -> int:
        """How many cells must be over before the next is suggested; what is known of later ones by
        then is there by chance."""
        return max(len(self.observations) - self.search.parallel + 1, 0)

    def _suggest(self) -> None:
        later = (Observation(o.cell, turn=o.turn) for o in self.observations[self._needed :])
        observations = [*self.observations[: self._needed], *later]
        if self.plan.places:
            (own, *_), places_K3 = self.plan.cells.values(), np.array(self.plan.places)
            of = {"depth": own[-1].spec.model.depth, "seeds": self.plan.most // len(self.space)}
            number = propose_by_map(self.search, places_K3, observations, **of)
        else:
            number = propose(self.search, self.search.objectives, self.space, observations)
        cell, trials = self.space.cells[number], self._trials_of(self._next_turn(number))
        suggestion = Suggestion(len(self.observations), cell, trials)
        self.folder.add_suggestion(suggestion)
        self._add(suggestion)
        self._observe()

    def _add(self, suggestion: Suggestion[Spec]) -> None:
        """Queue the open runs of a suggested cell."""
        number = self.space.number_of(suggestion.cell)
        if number is None:  # of another space, under the same name: the plan was checked
            return
        self.observations.append(self._next_turn(number))
        self._queue.add(self._open(self._trials_of(self.observations[-1])))

    def _next_turn(self, number: int) -> Observation:
        """Return a cell that nothing is known of since it was suggested last."""
        return Observation(number, turn=sum(o.cell == number for o in self.observations))

    def _trials_of(self, observation: Observation) -> tuple[Trial[RunSpec], ...]:
        """Return the runs of a suggested cell and of its baselines."""
        return self.plan.turn(repr(self.space.cells[observation.cell]), observation.turn)

    def _open(self, trials: Sequence[Trial[RunSpec]]) -> list[Task]:
        return self.plan.open_of(self.lab, self.plan.tasks_of(trials))

    def _observe(self) -> None:
        """Read the results of the open cells."""
        self.observations = [o if o.over else self._observed(o) for o in self.observations]

    def _observed(self, observation: Observation) -> Observation:
        """Return what is known of an open cell by now."""
        trials = self._trials_of(observation)
        open_runs = {task.run for task in self._open(trials)}
        if open_runs - self._ended:
            return observation
        own = [trial for trial in trials if trial.role == "trial"]
        if RunState.DIVERGED in self._states(own) and not open_runs:
            return replace(observation, state="bad")
        goals, evaluations = self.search.objectives, self.plan.evaluations
        completed = self._states(trials) == {RunState.COMPLETED}
        values = cell_values(self.lab, own, goals, evaluations) if completed else None
        if values is None:
            return replace(observation, state="failed")
        return replace(observation, state="measured", values=values)

    def _states(self, trials: Sequence[Trial[RunSpec]]) -> set[RunState]:
        """Return the states of a cell's runs."""
        return {self.lab.run(trial.run).state() for trial in trials}


@dataclass(frozen=True)
class Observation:
    """Observed state of a suggested cell.

    Attributes:
        cell: its number in the space.
        state: measured (with a value per objective), running, bad (diverged, worse than others) or
            failed (unknown).
        turn: number of earlier suggestions of the cell by the sampler `map`.
    """

    cell: int
    state: Literal["measured", "running", "bad", "failed"] = "running"
    values: tuple[float, ...] | None = None
    turn: int = 0

    @property
    def over(self) -> bool:
        return self.state != "running"


@dataclass(frozen=True)
class SamplerKind:
    """An Optuna sampler for a search and the seed of one suggestion.

    Attributes:
        draws: maximum number of repeated suggestions before the nearest new cell is used.
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
    """Return the number of the next untried cell.

    A pure function of its arguments: each suggestion has its own sampler, seeded by (search.seed,
    trial number), on an in-memory study of the observations. Bad cells have the worst observed
    values, because `gp` learns from values only.

    Raises:
        UserError: unknown sampler.
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


def propose_by_map(
    search: SearchSpec,
    places_K3: NDArray[np.float64],
    observations: Sequence[Observation],
    *,
    depth: int,
    seeds: int,
) -> int:
    """Return the number of the cell whose next seed to run.

    Drawn by its probability of being lowest on the smooth map (Thompson sampling); at first, among
    untried cells. A pure function of its arguments.

    Args:
        places_K3: start, end and rate of each cell.
        depth: blocks of the network.
        seeds: number of seeds per cell.
    """
    K, worst = len(places_K3), _worst_values(search.objectives, observations)
    sign = 1 if lower_is_better(search.objectives[0]) else -1
    values_SK, left_K, chance_K = np.full((seeds, K), np.nan), np.full(K, seeds), np.ones(K)
    for o in observations:
        values = worst if o.state == "bad" else o.values
        values_SK[o.turn, o.cell] = sign * values[0] if values else np.nan
        left_K[o.cell] -= 1
        chance_K[o.cell] = TINY
    known = int(np.isfinite(values_SK).any(axis=0).sum())
    if len(observations) >= search.startup and known >= FEWEST:
        chance_K = TINY + smooth_map(places_K3, values_SK, depth=depth)["best_of_all"].to_numpy()
    chance_K[left_K < 1] = 0
    rng = np.random.default_rng([search.seed, len(observations)])
    return int(rng.choice(K, p=chance_K / chance_K.sum()))


def _worst_values(
    objectives: Sequence[str], observations: Sequence[Observation]
) -> tuple[float, ...] | None:
    """Return the worst value of each objective, `None` before any cell is measured."""
    measured = zip(*(o.values for o in observations if o.values is not None))
    pairs = zip(objectives, measured)
    return tuple(max(v) if lower_is_better(name) else min(v) for name, v in pairs) or None


def directions(objectives: Sequence[str]) -> list[Literal["minimize", "maximize"]]:
    """Return the better direction of each objective."""
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
    """Silence Optuna's log lines and experimental warnings."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def cell_values(
    lab: Lab,
    trials: Sequence[Trial[RunSpec]],
    objectives: Sequence[str],
    evaluations: Sequence[EvaluationSpec],
) -> tuple[float, ...] | None:
    """Return the objectives of a cell, averaged over seeds; `None` if one is not finite.

    Raises:
        UserError: an objective that the sweep does not measure.
    """
    at_end = [spec for spec in evaluations if spec.step is None]
    values = tuple(
        math.fsum(_value(lab, trial, name, at_end) for trial in trials) / len(trials)
        for name in objectives
    )
    return values if all(math.isfinite(value) for value in values) else None


def _value(lab: Lab, trial: Trial[RunSpec], name: str, at_end: Sequence[EvaluationSpec]) -> float:
    if name.startswith("gap/"):
        if trial.baseline is None:
            return math.nan
        planned = [*map(signature, at_end)]
        gap = run_gaps(lab, trial.run, trial.baseline, planned=planned).get(name)
        return math.nan if gap is None else gap.mean
    value = _metric(lab, trial.run, name, at_end)
    return value - (_metric(lab, trial.baseline, name, at_end) if trial.baseline else 0.0)


def _metric(lab: Lab, run: str, name: str, at_end: Sequence[EvaluationSpec]) -> float:
    folder = lab.run(run)
    metrics: dict[str, float] = dict((folder.result() or {}).get("metrics") or {})
    if not metrics:
        return math.nan
    measured = [folder.evaluation(spec).read() or {} for spec in at_end]
    for tree in measured:
        metrics |= tree.get("metrics", {})
    failed = any(not tree or "problem" in tree for tree in measured)
    if name not in metrics and failed:
        return math.nan
    if name not in metrics:
        raise UserError(
            f"search.objectives: must be a measured metric, got {name!r}{suggest(name, metrics)}"
        )
    return float(metrics[name])
