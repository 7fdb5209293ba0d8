"""What a sweep file says: axes and their cells, seeds, search, hours, and what it holds equal."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tread_lab.config.decode import Count, Natural, Positive, settle, within
from tread_lab.config.errors import Mistakes, UserError, shown
from tread_lab.config.evaluation import EvaluationDefaults
from tread_lab.config.fields import field_value, set_once
from tread_lab.config.labels import ROUTE_AXES, Cell
from tread_lab.config.metrics import ReferenceSpec
from tread_lab.config.run import RunSpec

if TYPE_CHECKING:
    Seeds = tuple[int, ...]
else:
    Seeds = tuple[int, ...] | str  # a range is opened at once

ZIP = "zip"  # the key under which axes vary together
MOST_CELLS = 10_000  # times seeds
_NUMBER = r"-?\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,3})?"
_RANGE = (
    rf"({_NUMBER})\s*\.\.\s*({_NUMBER})"
    r"(?:\s+(log|linear)(?:\s+(\d{1,15}))?|\s+step\s+(\d{1,15}))?"
)
_VALUES = 33  # of a scaled range that does not say how many: a search chooses among them
_SCALES: Mapping[str, Callable[[float, float, float], float]] = {
    "log": lambda first, last, share: first * (last / first) ** share,
    "linear": lambda first, last, share: first + (last - first) * share,
}


# What a sweep matches -> the question that its comparisons answer.
QUESTIONS = {
    None: "at equal steps",
    "train_flops": "at equal training FLOPs",
    "train_seconds": "at equal device-hours",
}
UNEQUAL = "at unequal steps"  # of a sweep that matches nothing
STEPS = "train.steps"
SPEND = "spend"  # an axis: multiples of what the baseline of the base run spends
# Fields that a file may write as a share of all steps -> their description.
_SHARES = {
    "train.warmup": "a warm-up that is a share of all steps",
    "routes_from": "a routed phase that is a share of all steps",
    "routes_until": "a routed phase that is a share of all steps",
}
_LEAVES = {field.rpartition(".")[2]: field for field in _SHARES}

NOTICED, REFUSED = 0.05, 0.5  # shares of the initial weights that an EMA still holds at the end


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A named base run: the plain tree of a RunSpec, its sampler and evaluations.

    Attributes:
        reference: default reference statistics of sample evaluations.
    """

    name: str
    run: Mapping[str, Any]
    sampler: Mapping[str, Any] = field(default_factory=dict)
    evaluate: tuple[Any, ...] = ()
    reference: ReferenceSpec | None = None

    @property
    def usual(self) -> EvaluationDefaults:
        """The default sampler and reference of evaluations."""
        return EvaluationDefaults(sampler=self.sampler, reference=self.reference)


@dataclass(frozen=True, kw_only=True)
class SearchSpec:
    """The `search:` block of a sweep file; without it every cell is run.

    Attributes:
        sampler: `tpe` (tree-structured Parzen estimator), `gp` (Gaussian process) or `random`.
        trials: number of cells to try, each with all seeds.
        objectives: the metrics to improve, as tables name them. Each counts as the difference to
            the baseline, averaged over seeds. The default is `gap/heldout`, or `heldout/loss` in a
            sweep without a baseline.
        seed: seed of the search; equal seeds give equal suggestions for equal results.
        startup: random trials before the sampler learns.
        parallel: maximum of concurrent trials. Trial n depends on the results of trials up to n -
            parallel only, so not on their durations.
    """

    sampler: Literal["tpe", "gp", "random", "map"] = "tpe"
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

    Cells are compared by held-out loss, averaged over their seeds, at equal shares of their steps.
    Runs that others are compared with or start from are never stopped.

    Attributes:
        grace: first rung of the shortest run, in steps; `None` means steps / reduction. Earlier
            losses may order routes in reverse.
        reduction: the best 1/reduction of the cells at a rung continue; rungs are at grace x
            reduction^k, up to steps / reduction.
    """

    grace: Count | None = None
    reduction: Annotated[int, within("[2, inf)")] = 3

    @staticmethod
    def from_shorthand(value: Any) -> dict[str, Any]:
        if value != "asha":
            raise UserError(f"must be asha, null or {{grace: 100, reduction: 3}}, got {value!r}")
        return {}

    def first_rung(self, steps: int) -> int:
        """Return the first rung of a run of `steps` steps."""
        return self.grace or max(steps // self.reduction, 1)

    def rungs(self, steps: int) -> tuple[int, ...]:
        """Return the rungs of a run of `steps` steps."""
        first = self.first_rung(steps)
        rungs = (first * self.reduction**k for k in itertools.count())
        return tuple(itertools.takewhile(lambda rung: rung * self.reduction <= steps, rungs))


@dataclass(frozen=True, kw_only=True)
class SweepSpec:
    """The content of a sweep file.

    Attributes:
        question: what the sweep answers.
        experiment: the base run: a name from `experiments/`, or its content.
        fixed: fields of every run, including overrides; cells must not set them.
        baseline: fields that turn a trial into its baseline; `null` for no baseline.
        variants: axis -> {name: fields that this variant changes together}; an axis like any other.
        axes: field -> values; a mapping is a grid over its keys, a list of axes several grids; the
            axes under a key `zip` vary together.
        trials: further cells, each written out as {field: value}.
        where: expressions that a cell must satisfy; others are excluded. `None` is no condition.
        controls: dense runs compared with every baseline like trials, each written as {field:
            value} on top of the baseline, e.g. a smaller batch. A search has only the controls of
            baselines that all its cells share.
        match: the cost in which every trial equals its baseline; determines the steps. An axis
            `spend: [0.5, 1, 2]` multiplies the cost of both; `None` keeps the written steps.
        seeds: every cell and its baseline run once per seed; a list, or a range such as `0..4`.
        evaluate: evaluations of every run; `None` for the experiment's evaluations.
        sampler_axes: field of the sampler -> values, written as `axes` are; every evaluation of
            samples is repeated with each of them, on the same trained runs.
        search: suggests cells one after another; `None` runs every cell.
        stop_early: early stopping by ASHA; `None` trains every cell to the end.
        hours: time limit over all sessions; then runs stop with checkpoints.
        margin: equivalence margin of the gap in held-out loss; `None` tests no equivalence.
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
    margin: Positive | None = None
    plugins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = [self.where] if isinstance(self.where, str) else self.where or ()
        settle(self, where=tuple(where), seeds=_seeds(self.seeds))
        settle(self, variants=dict(_variants(self.variants)))
        for name in ("match", "controls") if self.baseline is None else ():
            if getattr(self, name):
                raise UserError(f"{name}: requires a baseline. Try removing `baseline: null`.")
        if self.search is not None and self.stop_early is not None:
            raise UserError("stop_early: must be null with `search`. Try listing cells in `axes`.")


def _seeds(seeds: Any) -> tuple[int, ...]:
    whole = numbers(seeds, "seeds") if isinstance(seeds, str) else seeds
    if len({*whole}) != len(whole) or not whole or any(type(x) is float or x < 0 for x in whole):
        raise UserError(f"seeds: must be distinct whole numbers from 0, got {[*whole]}. Try 0..2.")
    return tuple(whole)


def _variants(variants: Mapping[Any, Any]) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    for axis, named in variants.items():
        fields = named.values() if isinstance(named, Mapping) else ()
        if not fields or not all(isinstance(own, Mapping) for own in fields):
            example = f"variants: {{{axis}: {{base: {{}}, slow: {{train.lr: 1e-4}}}}}}"
            got = f"must be named fields, got {shown(named)}"
            raise UserError(f"variants.{axis}: {got}. Try {example}.")
        if axis in (*ROUTE_AXES, "selection"):
            raise UserError(f"variants.{axis}: must not be a field of routes. Try another name.")
        yield str(axis), named


def grid(axes: Any, name: str) -> list[Cell]:
    """Return the cells of one grid, or of a list of grids, in order; equal cells are kept.

    Raises:
        UserError: lists every mistake in the axes, or too many cells.
    """
    cells, wrong = list[Cell](), Mistakes()
    for place, one in _listed(axes, name):
        with wrong:
            cells += _combined("", one, place)
    wrong.check()
    check_count(len(cells), name)
    return cells


def _listed(axes: Any, path: str) -> list[tuple[str, Any]]:
    """Return one mapping of axes, or each of a list of them, with its place."""
    each = axes if isinstance(axes, list | tuple) else [axes]
    if not each:
        raise UserError("has no values").at(path)
    return [(path if len(each) == 1 else f"{path}[{k}]", one) for k, one in enumerate(each)]


def check_count(count: int, name: str) -> None:
    """Refuse too many cells."""
    if count > MOST_CELLS:
        most = f"must have at most {MOST_CELLS:,} cells"
        raise UserError(f"{name}: {most}, got {count:,}. Try splitting the sweep.")


def distinct(cells: Sequence[Cell]) -> list[Cell]:
    """Return the distinct cells in their order."""
    first = dict[str, Cell]()
    for cell in cells:
        first.setdefault(repr(sorted(cell.items())), cell)
    return [*first.values()]


def _combined(prefix: str, axes: Any, path: str, *, zipped: bool = False) -> list[Cell]:
    """Return the settings of all axes of a mapping, each with each, or of axes that vary together
    the first of each, the second of each."""
    if not isinstance(axes, Mapping) or (zipped and not axes):
        raise UserError(f"must be a mapping of axes, got {shown(axes)}").at(path)
    columns, wrong = dict[str, list[Cell]](), Mistakes()
    for key, values in axes.items():
        together, own = key == ZIP and not zipped, f"{path}.{key}"
        inner = prefix if together else f"{prefix}{key}."
        for place, part in _listed(values, own) if together else [(own, values)]:
            with wrong:
                if together or isinstance(part, Mapping):
                    columns[place] = _combined(inner, part, place, zipped=zipped or together)
                else:
                    columns[place] = _axis(f"{prefix}{key}", part, place)
    wrong.check()
    places: dict[str, str] = {}
    for place, column in columns.items():
        set_once(places, dict.fromkeys(name for cell in column for name in cell), place)
    if not zipped:
        check_count(math.prod(map(len, columns.values())), path)
    elif len({*map(len, columns.values())}) > 1:
        counts = ", ".join(f"{place} has {len(column)}" for place, column in columns.items())
        raise UserError(f"{path}: must have the same number of values on each axis; {counts}")
    rows = zip(*columns.values()) if zipped else itertools.product(*columns.values())
    return [{name: value for cell in row for name, value in cell.items()} for row in rows]


def _axis(name: str, values: Any, path: str) -> list[Cell]:
    """Return the settings that one axis runs through."""
    settings = [
        {f"{name}.{part}": item for part, item in value.items()}
        if isinstance(value, Mapping) and value
        else {name: value}
        for value in _values(values, path)
    ]
    if not settings:
        raise UserError("has no values").at(path)
    return settings


def _values(values: Any, path: str) -> list[Any]:
    """Return a list as it is, `0..7` as 0 to 7 inclusive, one value as a list of one.

    Ranges are opened inside a list too; a list inside a list is one value.
    """
    if isinstance(values, list | tuple):
        parts = ([v] if isinstance(v, list | tuple) else _values(v, path) for v in values)
        return [item for part in parts for item in part]
    return numbers(values, path) if isinstance(values, str) and ".." in values else [values]


def numbers(text: str, path: str) -> list[int] | list[float]:
    """Return the numbers of a range, both ends inclusive.

    `0..7` and `0..8 step 2` are whole numbers. `1e-4..1e-2 log` are 33 numbers at equal ratios,
    `0.1..0.9 linear 9` are 9 at equal distances; integers if both ends are.

    Raises:
        UserError: not a range, or one without or with too many numbers.
    """
    match, place = re.fullmatch(_RANGE, text.strip(), flags=re.ASCII), f"{path}: the range {text!r}"
    whole = match is not None and {".", "e"}.isdisjoint(match[1] + match[2])
    if match is None or not (whole or match[3]):
        forms = "0..7, 0..8 step 2, 1e-4..1e-2 log or 0.1..0.9 linear 9"
        raise UserError(f"{path}: must be a range, got {shown(text)}. Try {forms}.")
    first, last = float(match[1]), float(match[2])
    if match[3]:
        return _scaled(first, last, match[3], int(match[4] or _VALUES), place=place, whole=whole)
    step = int(match[5] or 1)
    if step == 0 or last < first:
        remedy = f"Try {min(int(first), int(last))}..{max(int(first), int(last))}."
        raise UserError(f"{path}: must be a range from low to high, got {text!r}. {remedy}")
    check_count(int(last - first) // step + 1, place)
    return list(range(int(first), int(last) + 1, step))


def _scaled(
    first: float, last: float, scale: str, count: int, *, place: str, whole: bool
) -> list[int] | list[float]:
    """Return the numbers that a scale puts between two, with three digits or, where these leave
    fewer numbers, with all; equal ones once."""
    if not first < last or count < 2 or (scale == "log" and first <= 0):
        raise UserError(f"{place}: must be from a smaller to a larger number, log from above 0")
    check_count(count, place)
    inner = [_SCALES[scale](first, last, k / (count - 1)) for k in range(1, count - 1)]
    rounded = [first, *(float(f"{x:.3g}") for x in inner), last]
    exact = rounded if [*dict.fromkeys(rounded)] == sorted(rounded) else [first, *inner, last]
    return list(dict.fromkeys(map(round, exact))) if whole else list(dict.fromkeys(exact))


def written_shares(settings: Any, field: str = "") -> set[tuple[str, float]]:
    """Return the fields of nested settings that are written as fractions, with these fractions.

    Args:
        field: the field of this tree.
    """
    if isinstance(settings, Mapping):
        parts = [
            (item, _LEAVES.get(str(key).rpartition(".")[2], field))
            for key, item in settings.items()
        ]
    elif isinstance(settings, list | tuple):
        parts = [(item, field) for item in settings]
    else:
        return {(field, settings)} if field and isinstance(settings, float) else set()
    return set().union(*(written_shares(item, of) for item, of in parts))


def follows_length(run: Mapping[str, Any], written: Iterable[tuple[str, float]]) -> str:
    """Return why an intermediate checkpoint differs from a shorter run; "" if it does not.

    Args:
        run: its tree, with shares of the steps as numbers.
        written: `written_shares` of the original settings.
    """
    train = run["train"]
    if train.get("schedule", "constant") != "constant":
        return f"schedule {train['schedule']}"
    if (train.get("ema") or {}).get("halflife") is not None:
        return "an EMA whose half-life is a share of all steps"
    if any(route.get("rate_end") is not None for route in run["routes"]):
        return "a rate that changes over all steps"
    for name, share in sorted(written):
        value = field_value(run, name)
        if value and round(share * train["steps"]) == value:
            return _SHARES[name]
    return ""


def check_treatments(specs: Iterable[RunSpec]) -> None:
    """Refuse runs or parents with settings that have no effect.

    Raises:
        UserError: a warm-up as long as the run, routes that are never on, or an EMA of mostly
            initial weights.
    """
    for spec in dict.fromkeys(run for one in specs for run in (*one.ancestors, one)):
        steps, train = spec.train.steps, spec.train
        if not steps:
            continue
        if train.warmup >= steps:
            raise UserError(
                f"train.warmup: must be below train.steps ({steps}), got {train.warmup}."
                " Try train.warmup=0."
            )
        routed = any(routes for _, routes in spec.phases)
        if spec.routes and spec.routes_until != 0 and not routed:  # 0 is a dense run, as meant
            raise UserError(
                f"routes_from: must be below the last routed step {spec.routes_until or steps},"
                f" got {spec.routes_from}. Try routes_from=0."
            )
        if (held := train.ema.initial(steps)) > REFUSED:
            raise UserError(
                f"train.ema: must be shorter, because {held:.0%} of the EMA after {steps} steps is"
                " initial weights. Try train.ema=0 for the raw weights."
            )


def ema_notices(specs: Iterable[RunSpec]) -> Iterator[str]:
    """Yield a line if EMAs still contain a noticeable share of the initial weights."""
    trained = [spec.train for spec in specs if spec.train.steps]
    held = max((train.ema.initial(train.steps) for train in trained), default=0.0)
    if held > NOTICED:
        yield f"train.ema: the EMA still holds {held:.0%} of the initial weights at the end"
