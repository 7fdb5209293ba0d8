"""What a sweep file says: axes, seeds, search, early stopping, hours; and its base experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tread_lab.config.axes import numbers
from tread_lab.config.bounds import Count, Natural, Positive, within
from tread_lab.config.decode import settle
from tread_lab.config.errors import UserError
from tread_lab.config.evaluation import EvaluationDefaults
from tread_lab.config.labels import ROUTE_AXES
from tread_lab.config.metrics import ReferenceSpec

if TYPE_CHECKING:
    Seeds = tuple[int, ...]
else:
    Seeds = tuple[int, ...] | str  # a range is opened at once


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A named base run: the plain tree of a RunSpec, how it is sampled and what is measured.

    Attributes:
        reference: statistics that every evaluation of samples compares with, if it names no other.
    """

    name: str
    run: Mapping[str, Any]
    sampler: Mapping[str, Any] = field(default_factory=dict)
    evaluate: tuple[Any, ...] = ()
    reference: ReferenceSpec | None = None

    @property
    def usual(self) -> EvaluationDefaults:
        """The sampler and reference of evaluations that name none."""
        return EvaluationDefaults(sampler=self.sampler, reference=self.reference)


@dataclass(frozen=True, kw_only=True)
class SearchSpec:
    """The `search:` block of a sweep file; without it every cell is run.

    Attributes:
        sampler: how cells are chosen: `tpe` (tree-structured Parzen estimator), `gp` (Gaussian
            process) or `random`.
        trials: how many cells are tried, each with all seeds.
        objectives: the metrics to improve, as tables name them. Each counts as the difference to
            the baseline, averaged over seeds. The default is `gap/heldout`, or `heldout/loss` in a
            sweep without a baseline.
        seed: of the search itself; the same seed asks for the same trials.
        startup: random trials before the sampler learns.
        parallel: trials in flight at most. Trial n is chosen from the results of the trials up to
            n - parallel alone, so the choice does not depend on how long each takes.
    """

    sampler: Literal["tpe", "gp", "random"] = "tpe"
    trials: Count = 20
    objectives: tuple[str, ...] = ()
    seed: Natural = 0
    startup: Count = 8
    parallel: Count = 2

    def __post_init__(self) -> None:
        if len(set(self.objectives)) != len(self.objectives):
            raise UserError(f"objectives: must be distinct, got {list(self.objectives)}")


@dataclass(frozen=True, kw_only=True)
class StopEarlySpec:
    """The `stop_early:` block of a sweep file: asynchronous successive halving (ASHA).

    Trials are judged by their training loss less that of their baseline over the same steps;
    baselines run first and are never stopped.

    Attributes:
        grace: the first step at which a trial is judged; `None` means steps / reduction^2 of the
            shortest, so that all are judged at equal steps.
        reduction: the best 1/reduction of the trials that reached a rung continue; rungs are at
            grace x reduction^k, none beyond steps / reduction.
    """

    grace: Count | None = None
    reduction: Annotated[int, within("[2, inf)")] = 3

    @staticmethod
    def from_shorthand(value: Any) -> dict[str, Any]:
        if value != "asha":
            raise UserError(f"must be asha, null or {{grace: 100, reduction: 3}}, got {value!r}")
        return {}

    def first_rung(self, steps: int) -> int:
        """Return the first step at which a run of so many steps is judged."""
        return self.grace or max(steps // self.reduction**2, 1)

    def rungs(self, steps: int) -> tuple[int, ...]:
        """Return all steps at which a run of so many steps is judged."""
        first = self.first_rung(steps)
        rungs = (first * self.reduction**k for k in count())
        return tuple(takewhile(lambda rung: rung * self.reduction <= steps, rungs))


@dataclass(frozen=True, kw_only=True)
class SweepSpec:
    """What a sweep file says.

    Attributes:
        question: what the sweep answers.
        experiment: the base run: a name from `experiments/`, or what such a file says.
        fixed: fields that every run has, which no cell sets again; what is typed is fixed, too.
        baseline: fields that turn a trial into the run it is compared with; `null` for no baseline.
        variants: axis -> {name: fields that this variant changes together}; an axis like any other.
        axes: field -> values; a mapping is a grid over its keys, a list of axes several grids; the
            axes under a key `zip` vary together.
        trials: further cells, each written out as {field: value}.
        where: expressions that a cell must meet; the others are holes. `None` is no condition.
        controls: dense runs that every baseline is compared with beside the trials, each written
            as {field: value} on top of the baseline, e.g. a smaller batch: what a route gains at
            equal cost, a control may gain without one. A search has those of the baselines that all
            its cells share.
        match: what every trial spends as much of as its baseline: its steps follow. An axis
            `spend: [0.5, 1, 2]` varies what both spend; `None` keeps the steps that are written.
        seeds: every cell and its baseline run once per seed; a list, or a range such as `0..4`.
        evaluate: evaluations of every run; `None` means those of the experiment.
        sampler_axes: field of the sampler -> values, written as `axes` are; every evaluation of
            samples is made with each of them, on the same trained runs.
        search: how cells are chosen one after another; `None` runs every cell.
        stop_early: ends trials that are worse than the others after a few steps.
        hours: that the command may run, all sessions together; then runs stop with checkpoints.
        plugins: modules to import first, which register selections, metrics and the like.
    """

    experiment: str | dict[str, Any]
    question: str = ""
    fixed: dict[str, Any] = field(default_factory=dict)
    baseline: dict[str, Any] | None = field(default_factory=lambda: {"routes": []})
    variants: dict[str, Any] = field(default_factory=dict)
    axes: Any = field(default_factory=dict)
    trials: tuple[dict[str, Any], ...] = ()
    where: tuple[str, ...] | str | None = ()
    seeds: Seeds = (0,)
    evaluate: tuple[Any, ...] | None = None
    sampler_axes: Any = field(default_factory=dict)
    search: SearchSpec | None = None
    hours: Positive | None = None
    stop_early: StopEarlySpec | None = None
    match: Literal["train_flops", "train_seconds"] | None = None
    controls: tuple[dict[str, Any], ...] = ()
    plugins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.match is not None and self.baseline is None:
            raise UserError("match: there is no baseline to match; leave out `baseline: null`")
        if self.controls and self.baseline is None:
            raise UserError("controls: require a baseline; leave out `baseline: null`")
        if self.match is not None and self.stop_early is not None:
            raise UserError(
                "stop_early: judges at equal steps, and `match` changes them; leave one"
            )
        settle(self, seeds=_seeds(self.seeds), variants=dict(_variants(self.variants)))
        if self.stop_early is not None and len(self.seeds) > 1:
            raise UserError(
                f"stop_early: requires one seed, got {len(self.seeds)}. It stops single runs, and a"
                " cell counts only with all its seeds. Try seeds=[0], or stop_early=null"
            )


def _seeds(seeds: Any) -> tuple[int, ...]:
    if isinstance(seeds, str):
        seeds = numbers(seeds, "seeds")
    if any(isinstance(seed, float) for seed in seeds):
        raise UserError(f"seeds: must be whole numbers, got {seeds[0]:g}..{seeds[-1]:g}. Try 0..2.")
    if len(set(seeds)) != len(seeds) or not seeds:
        raise UserError(f"seeds: must be distinct and at least one, got {list(seeds)}. Try 0..2.")
    if min(seeds) < 0:
        raise UserError(f"seeds: must not be negative, got {min(seeds)}")
    return tuple(seeds)


def _variants(variants: Mapping[Any, Any]) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    for axis, named in variants.items():
        if not isinstance(named, Mapping) or not all(
            isinstance(fields, Mapping) for fields in named.values()
        ):
            raise UserError(f"variants.{axis}: expected {{name: {{field: value}}}}")
        if not named:
            raise UserError(f"variants.{axis}: has no values")
        if axis in (*ROUTE_AXES, "selection"):
            raise UserError(f"variants.{axis}: routes have a field of this name; choose another")
        yield str(axis), named
