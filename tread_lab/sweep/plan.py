"""The plan of a sweep: its trials, their tasks and cost, and plan.json, which stores it."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

from tread_lab.config.decode import decode, encode
from tread_lab.config.errors import UserError, lookup, suggest
from tread_lab.config.evaluation import EvaluationSpec, SamplesSpec, decode_evaluations
from tread_lab.config.labels import Cell, Spec, Tree, Trial, axis_label, count_label
from tread_lab.config.metrics import extractor_for
from tread_lab.config.run import RunSpec
from tread_lab.config.sweep import Experiment, SearchSpec, SweepSpec, check_treatments, ema_notices
from tread_lab.cost.training import cost
from tread_lab.hardware import Devices
from tread_lab.records import metric_names
from tread_lab.records.durable import digest, write_text
from tread_lab.records.early_stopping import stopped_early
from tread_lab.records.lab import Lab, with_parents
from tread_lab.records.sweep_folder import PlanOf, SweepFolder
from tread_lab.sweep.expand import Completion, Expansion, expand
from tread_lab.sweep.forecast import TrainSeconds, disk_bytes
from tread_lab.sweep.task import Task, is_complete, with_ancestors

T = TypeVar("T", SweepSpec, Experiment)
PLACE = {"start", "end", "rate", "route"}  # axes of the sampler `map`
Cells = dict[str, tuple[Trial[RunSpec], ...]]


@dataclass(frozen=True)
class Plan(PlanOf[RunSpec]):
    """An executable plan: trials in order, baselines first.

    For a search, `trials` are the baselines shared by all cells. A loaded plan has no `cells`; its
    `trials` include suggested ones.

    Attributes:
        cells: search space: runs of every cell and its baselines, by the cell's text.
        search_spec: search of the sweep file; `None` for a loaded plan.
        places: start, end and rate of each cell for the sampler `map`; else empty.
    """

    cells: Cells = field(default_factory=Cells, repr=False)
    search_spec: SearchSpec | None = None
    places: tuple[tuple[int, int, float], ...] = ()

    @cached_property
    def evaluations(self) -> tuple[EvaluationSpec, ...]:
        """All evaluations; evaluations that share images stay as first planned."""
        written = ([tree] for tree in self.evaluations_as_written)
        return tuple(chain.from_iterable(map(decode_evaluations, written)))

    def trials_of(self, *cells: Cell) -> tuple[Trial[RunSpec], ...]:
        """Return the runs of some cells: of each one a seed, those of its baselines first.

        The sampler `map` requests single runs: a repeated cell means its next seed.
        """
        names = [*map(repr, cells)]
        turns = [names[:k].count(name) for k, name in enumerate(names)]
        return tuple(t for name, turn in zip(names, turns) for t in self.turn(name, turn))

    def turn(self, name: str, turn: int) -> tuple[Trial[RunSpec], ...]:
        """Return the runs of a cell that was suggested `turn` times before."""
        own = self.cells[name]
        if not self.places:
            return own
        seeds = [*dict.fromkeys(trial.seed for trial in own)]
        return tuple(trial for trial in own if trial.seed == seeds[turn])

    def tasks_of(self, trials: Iterable[Trial[RunSpec]]) -> tuple[Task, ...]:
        """Return the distinct tasks of some trials, parents first."""
        specs = {trial.run: trial.spec for trial in trials}
        defaults = self.evaluation_defaults
        return with_ancestors(Task(spec, self.evaluations, defaults) for spec in specs.values())

    @property
    def most(self) -> int:
        """Maximum number of suggestions: one per cell, or per cell and seed."""
        runs = sum(trial.role == "trial" for own in self.cells.values() for trial in own)
        return runs if self.places else len(self.cells)

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """Every task once, parents first, although trials may share a run or a parent."""
        return self.tasks_of(self.trials)

    @property
    def parents(self) -> int:
        """Number of parent runs that are not trials."""
        return len(self.tasks) - len({trial.run for trial in self.trials})

    @property
    def possible_trials(self) -> tuple[Trial[RunSpec], ...]:
        """Every possible trial: for a search, of all cells, with repetitions."""
        if self.search_spec is None:
            return self.trials
        return tuple(trial for own in self.cells.values() for trial in own)

    @cached_property
    def possible_tasks(self) -> tuple[Task, ...]:
        return self.tasks if self.search_spec is None else self.tasks_of(self.possible_trials)

    def open_tasks(self, lab: Lab) -> list[Task]:
        """Return the open tasks of the plan."""
        return self.open_of(lab, self.tasks)

    def open_of(self, lab: Lab, tasks: Iterable[Task]) -> list[Task]:
        """Return the open tasks among `tasks`; stopped ones are done."""
        stopped = stopped_early(lab, self)
        return [task for task in tasks if not is_complete(lab, task) and task.run not in stopped]

    @property
    def train_flops(self) -> int:
        return sum(cost(task.spec).train_flops for task in self.tasks)

    @property
    def disk_bytes(self) -> int:
        return disk_bytes(self.tasks)


def with_whole_parents(part: T, lab: Lab) -> T:
    """Return a sweep or experiment in which the spec of each parent replaces its signature.

    Raises:
        UserError: an unknown or ambiguous run.
    """
    return decode(type(part), with_parents(vars(part), lab))


def plan_sweep(
    lab: Lab,
    name: str,
    sweep: SweepSpec,
    experiment: Experiment,
    devices: Devices,
    whole: Completion,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> Plan:
    """Return the plan of a sweep, with specs of parents from its lab.

    Args:
        whole: completes each run before its signature is computed, e.g. `DataDigests.named`.
    """
    full, base = with_whole_parents(sweep, lab), with_whole_parents(experiment, lab)
    stored = lab.sweep(name).stored_plan()
    seconds = TrainSeconds(lab, devices, stored.sources.get("speeds", {}) if stored else {})
    plan = make_plan(name, full, base, devices.names(), seconds, whole)
    if (seed := base.run.get("seed", sweep.seeds[0])) not in sweep.seeds:
        say(
            f"seed: {seed} in {base.name} is ignored; the sweep runs seeds={[*sweep.seeds]}. Try"
            f" seeds=[{seed}]."
        )
    specs = [trial.spec for trial in plan.possible_trials]
    check_treatments(specs)
    for line in ema_notices(specs):
        say(line)
    return plan


def make_plan(
    name: str,
    sweep: SweepSpec,
    experiment: Experiment,
    facts: Mapping[str, Any] | None = None,
    seconds: TrainSeconds | None = None,
    whole: Completion = lambda spec: spec,
) -> Plan:
    """Expand a sweep into its plan; write nothing.

    Args:
        facts: further names for `where`.
        whole: completes each run before its signature is computed.
    """
    timed = sweep.match == "train_seconds"
    price = seconds if timed else lambda spec: cost(spec).train_flops
    expansion = expand(sweep, experiment, facts, price, whole)
    speeds = {"speeds": seconds.stored} if timed and seconds is not None else {}
    if sweep.stop_early is not None and (axes := [*_scaling_axes(expansion.trials)]):
        raise UserError(
            f"stop_early: must be null where axes change the scale of losses, got {axes[0]}. Try a"
            " sweep for each value."
        )
    search, cells = sweep.search, Cells()
    if search is not None:
        objectives = objectives_of(search, sweep, expansion.evaluations, expansion.trials)
        search, cells = replace(search, objectives=objectives), _cells(expansion)
    by_map = search if search is not None and search.sampler == "map" else None
    return Plan(
        name=name,
        question=sweep.question,
        experiment=experiment.name,
        trials=expansion.trials if search is None else _shared(expansion, cells),
        evaluate=tuple(encode(expansion.evaluations)),
        sources={"sweep": encode(sweep), "experiment": encode(experiment), **speeds},
        excluded=expansion.excluded,
        search=None if search is None else _search_tree(search, cells),
        space=tuple(own[-1].cell for own in cells.values()),
        cells=cells,
        search_spec=search,
        places=() if by_map is None else tuple(_places(by_map, cells)),
    )


def _places(search: SearchSpec, cells: Cells) -> Iterator[tuple[int, int, float]]:
    """Yield start, end and rate of each cell for the smooth map.

    Raises:
        UserError: cells differ in more than a route, or the search has several objectives.
    """
    from tread_lab.results.smooth_map import MOST  # pandas

    if len(search.objectives) > 1:
        got = list(search.objectives)
        raise UserError(f"search.objectives: must be one for the sampler map, got {got}. Try tpe.")
    for own in cells.values():
        routes = own[-1].spec.routes
        if {*map(axis_label, own[-1].cell)} - PLACE or len(routes) != 1 or len(cells) > MOST:
            raise UserError(
                f"search.sampler: map requires at most {MOST} cells, and only the axes start, end"
                " and rate of one route. Try tpe."
            )
        yield int(routes[0].start), int(routes[0].end), float(routes[0].rate)


def _cells(expansion: Expansion) -> Cells:
    """Return the trials of each cell of an expansion, those of its baselines first."""
    baselines = {trial.run: trial for trial in expansion.trials if trial.role == "baseline"}
    cells: dict[str, dict[str, Trial[RunSpec]]] = {}
    for trial in (trial for trial in expansion.trials if trial.role == "trial"):
        own = cells.setdefault(repr(trial.cell), {})
        if trial.baseline in baselines:
            own[f"baseline {trial.baseline}"] = baselines[trial.baseline]
        own[trial.run] = trial  # at rate 0 the run of its own baseline
    return {
        name: tuple(sorted(own.values(), key=lambda trial: trial.role != "baseline"))
        for name, own in cells.items()
    }


def _search_tree(search: SearchSpec, cells: Cells) -> Tree:
    """Return how a search chooses and from what, without the number of trials, which may change."""
    settings = {name: value for name, value in encode(search).items() if name != "trials"}
    runs = "\n".join(sorted({trial.run for own in cells.values() for trial in own}))
    checksums = {"checksum": digest("\n".join(cells)), "runs": digest(runs)}
    return {**settings, "space": {"cells": len(cells), **checksums}}


def _shared(expansion: Expansion, cells: Cells) -> tuple[Trial[RunSpec], ...]:
    """Return the baselines that every cell is compared with, and their controls."""
    shared = set.intersection(*({trial.run for trial in own} for own in cells.values()))
    of_shared = {"baseline": lambda t: t.run in shared, "control": lambda t: t.baseline in shared}
    return tuple(t for t in expansion.trials if t.role in of_shared and of_shared[t.role](t))


def pending_tasks(plan: Plan, lab: Lab) -> list[Task]:
    """Return the open tasks in order; cells from across the space represent later suggestions."""
    if plan.search_spec is None:
        return plan.open_tasks(lab)
    cells = _suggested_cells(plan, lab)
    tried, turns = Counter(map(repr, cells)), plan.most // len(plan.space)
    later = [cell for turn in range(turns) for cell in plan.space if tried[repr(cell)] <= turn]
    missing = max(plan.search_spec.trials - len(cells), 0)
    every = max(len(later) // missing, 1) if missing else 1
    cells += later[::every][:missing]
    trials = (*plan.trials, *plan.trials_of(*cells))
    return plan.open_of(lab, plan.tasks_of(trials))


def started_tasks(plan: Plan, lab: Lab) -> tuple[Task, ...]:
    """Return the tasks of the sweep so far, including suggested cells."""
    if plan.search_spec is None:
        return plan.tasks
    suggested = plan.trials_of(*_suggested_cells(plan, lab))
    return plan.tasks_of([*plan.trials, *suggested])


def _suggested_cells(plan: Plan, lab: Lab) -> list[Cell]:
    return [entry.cell for entry in lab.sweep(plan.name).suggestions()]


_COSTS = (
    metric_names.TRAIN_FLOPS,
    metric_names.FAMILY_FLOPS,
    metric_names.TRAIN_SECONDS,
    metric_names.STEP_SECONDS,
    metric_names.IMAGES_PER_S,
    metric_names.PEAK_MEMORY,
)
_MEASURED = {  # by kind of evaluation; `samples` lists its own metrics
    "heldout_loss": (
        metric_names.HELDOUT_LOSS,
        metric_names.HELDOUT_ROUTED,
        metric_names.GAP_TRAIN,
        metric_names.GAP_HELDOUT,
        metric_names.GAP_ROUTE,
    ),
    "layer_similarity": (metric_names.SIMILARITY,),
}


def objectives_of(
    search: SearchSpec,
    sweep: SweepSpec,
    evaluations: Sequence[EvaluationSpec],
    trials: Sequence[Trial[RunSpec]],
) -> tuple[str, ...]:
    """Return the objectives of a search under their full names: `fd@1k` is short for one.

    By default the gap in held-out loss, or the loss itself if an axis changes the baseline.

    Raises:
        UserError: a gap without baseline, an objective of no or several evaluations, or one without
            a better direction.
    """
    has_baseline, sources = sweep.baseline is not None, {t.spec.data.source for t in trials}
    default = metric_names.GAP_HELDOUT if _gaps_rank(trials) else metric_names.HELDOUT_LOSS
    at_end = (spec for spec in evaluations if spec.step is None)
    measured = [names for spec in at_end for names in _measured(spec, sources)]
    full_names = {short: full for full, short in measured}
    names = [*_COSTS, *(full for full, _ in measured)]
    counts = Counter(n for n in names if has_baseline or not n.startswith("gap/"))
    objectives = tuple(full_names.get(name, name) for name in search.objectives or (default,))
    choices = [metric for metric in counts if metric_names.metric_kind(metric).better]
    for name in objectives:
        if name not in choices:
            raise UserError(
                "search.objectives: must be a metric that the sweep measures at the end of a run"
                f" (a gap also requires a baseline), got {name!r}{suggest(name, choices)}"
            )
        if counts[name] > 1:
            raise UserError(
                f"search.objectives: must come from one evaluation, got {counts[name]} that"
                f" measure {name}. Try removing all but one."
            )
    return objectives


def _gaps_rank(trials: Sequence[Trial[RunSpec]]) -> bool:
    """Return whether cells are compared by differences to their baselines, as in a ranking."""
    baselines = [trial for trial in trials if trial.role == "baseline"]
    kinds = {baseline.run for baseline in baselines if baseline.seed == baselines[0].seed}
    if len(kinds) < 2:
        return bool(kinds)
    return any(_scaling_axes(trials))


def _scaling_axes(trials: Sequence[Trial[RunSpec]]) -> Iterator[str]:
    """Yield the axes along which held-out losses are of other data or another process."""
    from tread_lab.results.ranking import scales_loss  # pandas

    for axis in dict.fromkeys(axis for trial in trials for axis in trial.cell):
        if scales_loss(axis, [trial.cell.get(axis) for trial in trials if trial.cell]):
            yield axis


def _measured(spec: EvaluationSpec, sources: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the full name and the short name of every metric of an evaluation."""
    if not isinstance(spec, SamplesSpec):
        yield from ((name, name) for name in lookup(_MEASURED, spec.kind, "evaluate"))
        return
    for metric in spec.metrics:
        short, heldout = f"{metric}@{count_label(spec.count)}", spec.reference is None
        for extractor in {extractor_for(metric, source) for source in sources}:
            full = metric_names.sample_metric(metric, extractor, spec.count, heldout=heldout)
            yield full, short


def store_plan(folder: SweepFolder, plan: Plan) -> None:
    """Write a plan and append it to the sweep's history, unless it is the stored one.

    Raises:
        UserError: as in `check_edit`.
    """
    check_edit(folder, plan)
    stored, now = folder.stored_plan(), time.time()
    written = dataclasses.replace(plan, created=now if stored is None else stored.created)
    if stored is not None and stored.text() == written.text():
        return
    folder.remove_figures()  # of the former plan
    folder.add_accepted(written, now)
    write_text(folder.plan_path, written.text())


def check_edit(folder: SweepFolder, plan: Plan) -> None:
    """Refuse a file that does not continue the stored plan of its name.

    Raises:
        UserError: no common run, or a search with other cells, evaluations or settings.
    """
    stored = folder.stored_plan()
    if stored is None:
        return
    if plan.search is not None or stored.search is not None:
        if _searched(stored) != _searched(plan):
            raise UserError(
                f"search: only trials and hours may change under the name {plan.name!r}. Try"
                " another --name."
            )
    elif not {trial.run for trial in stored.trials} & {trial.run for trial in plan.trials}:
        raise UserError(
            "--name: must be new for a file that shares no run with the last one, got "
            f"{plan.name!r}. Try another --name."
        )


def _searched(plan: PlanOf[Spec]) -> Any:
    """Return what must not change under the name of a search."""
    evaluations = [_without_path(tree) for tree in plan.evaluate]
    return evaluations, plan.search, [(t.run, t.baseline) for t in plan.trials]


def _without_path(evaluation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tree of an evaluation without the place of its reference, which is not signed."""
    if not evaluation.get("reference"):
        return evaluation
    return {**evaluation, "reference": {"name": evaluation["reference"]["name"]}}


def load_plan(folder: SweepFolder) -> Plan:
    """Return the stored plan, its specs decoded.

    Raises:
        UserError: missing or unreadable; names the file.
    """
    stored = folder.plan()
    fields = {field.name: getattr(stored, field.name) for field in dataclasses.fields(stored)}
    try:
        trials = [Trial(**{**vars(t), "spec": decode(RunSpec, t.spec)}) for t in stored.trials]
        plan = Plan(**{**fields, "trials": tuple(trials)})
        assert plan.evaluations is not None  # decoded here
    except UserError as error:
        raise error.at(str(folder.plan_path)) from None
    return plan


def plan_with_costs(plan: Plan) -> dict[str, Any]:
    """Return `plan.json` with counts and costs, deterministically."""
    specs = {task.run: task.spec for task in plan.tasks}
    roles = Counter(trial.role for trial in plan.trials)
    counts = {
        "trials": roles["trial"],
        "baselines": roles["baseline"],
        "controls": roles["control"],
        "parents": plan.parents,
        "runs": len(specs),
        "evaluations": len(plan.evaluations),
        "holes": sum(hole.count for hole in plan.excluded),
    }
    costs = {"train_flops": plan.train_flops, "disk_bytes": plan.disk_bytes}
    runs = {run: _price(spec) for run, spec in specs.items()}
    tree = dataclasses.replace(plan, created=None).tree()
    return {**tree, "counts": counts, "cost": costs, "runs": runs}


_PRICES = ("parameters", "train_flops", "speedup", "checkpoint_bytes")


def _price(spec: RunSpec) -> dict[str, float]:
    return {name: round(getattr(cost(spec), name), 4) for name in _PRICES}
