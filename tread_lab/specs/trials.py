"""Cells and seeds become trials; each trains as long as its baseline, in steps or in cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tread_lab.specs.cell import Cell, CellNames, Trial, labelled
from tread_lab.specs.decode import decode, decode_field, encode
from tread_lab.specs.errors import UserError, shown
from tread_lab.specs.evaluation import BASELINE
from tread_lab.specs.fields import TOP, dotted, field_value, leaves_of, run_of, with_fields
from tread_lab.specs.run import RunSpec
from tread_lab.specs.signature import signature

# What a sweep matches -> the question that its comparisons answer.
QUESTIONS = {
    None: "at equal steps",
    "train_flops": "at equal training FLOPs",
    "train_seconds": "at equal device-hours",
}
UNEQUAL = "at unequal steps"  # of a sweep that matches nothing
STEPS = "train.steps"
SPEND = "spend"  # an axis: multiples of what the baseline of the base run spends
# Fields that a file may write as a share of all steps -> what such a one is.
_SHARES = {
    "train.warmup": "a warm-up that is a share of all steps",
    "routes_from": "a routed phase that is a share of all steps",
    "routes_until": "a routed phase that is a share of all steps",
}
_LEAVES = {field.rpartition(".")[2]: field for field in _SHARES}
_ROUTES = re.compile(r"((?:then\.)*)(routes|route|rate)(\.|$)")  # what says a phase's routes
_ROUNDED = 8  # steps within which rounded phases may cost less for more steps
Price = Callable[[RunSpec], float]  # what all training steps of a run cost


def matched_steps(price: Callable[[int], float], spent: float, steps: int) -> int:
    """Return the steps whose price is nearest to `spent`.

    Args:
        price: of a run of so many steps. It rises with them, but for what the rounding of a phase's
            ends takes back.
        steps: where the search starts, at least 1.
    """
    low = high = max(1, round(steps * spent / price(steps)))  # where all steps cost the same
    width = 1
    while low > 1 and price(low) > spent:
        low, width = max(1, low - width), 2 * width
    width = 1
    while price(high) < spent:
        high, width = high + width, 2 * width
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if price(middle) < spent else (low, middle)

    def nearest(around: int) -> int:
        counts = range(max(1, low - around), high + around + 1)
        return min(counts, key=lambda count: abs(price(count) - spent))

    found = nearest(1)
    half_a_step = price(found) / found / 2
    return found if abs(price(found) - spent) <= half_a_step else nearest(_ROUNDED)


def steps_off(price: Price, run: RunSpec, baseline: RunSpec) -> float:
    """Return by how many of its own steps a run spends more than its baseline; negative: less."""
    return (price(run) - price(baseline)) * run.train.steps / price(run)


def check_axis(key: str, fields: Mapping[str, Any], path: str, match: str | None) -> None:
    """Refuse an axis that decides steps where the sweep's `match` does, and `spend` without it.

    Args:
        fields: that the axis sets.
    """
    if match is None and key == SPEND:
        raise UserError(f"{path}: of what? say `match: train_flops` in the sweep file")
    if match is not None and any(name.endswith(STEPS) for name, _ in dotted(fields)):
        raise UserError(
            f"{path}: `match: {match}` decides the steps already; `{SPEND}: [0.5, 1, 2]` varies"
            " what baseline and trial spend"
        )


def check_spend(value: Any) -> float:
    """Return a multiple of what is spent.

    Raises:
        UserError: it is no positive number.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < float("inf"):
        raise UserError(f"{SPEND}: expected a positive number, got {shown(value)}")
    return float(value)


def baseline_step(runs: Iterable[tuple[RunSpec, RunSpec]], trees: Iterable[Any]) -> int:
    """Return the step `at baseline`: the one at which the baselines of all trials end.

    Args:
        runs: the run of every trial, and that of its baseline.
        trees: of the trials, as they are written.

    Raises:
        UserError: they end at several, or an earlier step of a trial is no shorter run.
    """
    ends, written = set[int](), written_shares([*trees])
    for trial, baseline in runs:
        ends.add(baseline.train.steps)
        follows = follows_length(encode(trial), written) or follows_length(encode(baseline), ())
        if follows:
            raise UserError(
                f"evaluate: `at {BASELINE}` compares at equal steps, and under {follows} an"
                " earlier step is no shorter run; say `fixed: {train: {schedule: constant,"
                " ema: 0.97}}`, and write shares as steps"
            )
    if len(ends) != 1:
        some = ", ".join(map(str, sorted(ends))) or "no"
        raise UserError(f"evaluate: `at {BASELINE}` needs one length of baselines, got {some}")
    return ends.pop()


def written_shares(settings: Any, field: str = "") -> set[tuple[str, float]]:
    """Return the fields that a tree of settings writes as fractions, at whatever depth, with these.

    Args:
        field: that the tree is written for.
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
    """Return what makes a stage of a run differ from a shorter run; "" where nothing does.

    Args:
        run: its tree, which holds a share of all its steps as a number.
        written: `written_shares` of what it was made from.
    """
    train = run["train"]
    if train.get("schedule", "constant") != "constant":
        return f"schedule {train['schedule']}"
    if (train.get("ema") or {}).get("halflife") is not None:
        return "an EMA whose half-life is a share of all steps"
    for field, share in sorted(written):
        value = field_value(run, field)
        if value and round(share * train["steps"]) == value:
            return _SHARES[field]
    return ""


Completion = Callable[[RunSpec], RunSpec]


class OtherData(UserError):
    """A run cannot be completed because its data have changed or are unknown, whatever its cell."""


class Trials:
    """Makes the trials of one sweep.

    Args:
        base: the plain tree that every cell changes.
        baseline: fields that turn a trial's tree into that of its baseline; `None` for no baseline.
        price: of a run; every trial has the steps that cost what its baseline costs. `None` leaves
            the steps as they are written.
        whole: completes a run, by what no file says, before it is signed.
    """

    def __init__(
        self,
        base: Mapping[str, Any],
        baseline: Mapping[str, Any] | None,
        price: Price | None = None,
        whole: Completion = lambda spec: spec,
    ) -> None:
        self.base, self.baseline, self.price, self._whole = base, baseline, price, whole
        self._shared = SharedParts()
        self._runs: dict[str, tuple[RunSpec, str]] = {}

    def pair(
        self, cell: Cell, tree: Mapping[str, Any], seed: int
    ) -> tuple[Trial[RunSpec] | None, Trial[RunSpec]]:
        """Return the baseline of a cell, or `None`, and the cell's trial, both with one seed.

        Raises:
            UserError: the cell is no possible run, or its baseline is none.
        """
        tree, labels = {**tree, "seed": seed}, labelled(cell)
        if self.baseline is None:
            return None, Trial("trial", labels, seed, *self._run(tree), None)
        tree, dense = self._compared(tree, self._dense(cell, tree), cell)
        run = self._run(dense, "baseline")
        trial = Trial("trial", labels, seed, *self._run(tree), run[1])
        return Trial("baseline", {}, seed, *run, None), trial

    def controls(
        self, controls: Sequence[Mapping[str, Any]], cell: Cell, tree: Mapping[str, Any], seed: int
    ) -> Iterator[Trial[RunSpec]]:
        """Yield the controls of a cell's baseline with one seed, compared as trials are.

        Args:
            controls: fields that turn the baseline into a control.

        Raises:
            UserError: a control is no possible run, or is the baseline.
        """
        dense = self._dense(cell, {**tree, "seed": seed})
        for number, control in enumerate(controls):
            path = f"controls[{number}]"
            fields = CellNames(dense, {}).settled(leaves_of(control))
            own, base = self._compared(with_fields(dense, fields, path), dense, cell)
            run, baseline = self._run(own, path), self._run(base, "baseline")[1]
            if run[1] == baseline:
                raise UserError(f"{path}: must change the baseline, got {shown(control)}")
            yield Trial("control", fields, seed, *run, baseline)

    def _dense(self, cell: Cell, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tree of the baseline of a cell."""
        fields = CellNames(tree, cell).settled(self.baseline)
        return with_fields(_as_dense(dict(tree), fields), fields, "baseline")

    def _compared(
        self, tree: dict[str, Any], dense: dict[str, Any], cell: Cell
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the trees of a run and of its baseline, matched where the sweep matches."""
        if self.price is None:
            return tree, dense
        return self._matched(tree, dense, check_spend(cell.get(SPEND, 1)))

    def _matched(
        self, tree: dict[str, Any], dense: dict[str, Any], spend: float
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the trees of a trial and of its baseline, which spend the same."""
        assert self.price is not None
        price, base = self.price, self._run(dense, "baseline")[0]
        if self._run(tree)[0].parent is not None or base.parent is not None:
            raise UserError("match: what a parent spent is not counted; leave out `then`")
        if spend != 1:
            dense = _with_steps(dense, max(1, round(spend * base.train.steps)))
            base = self._run(dense, "baseline")[0]
        if not base.train.steps:
            raise UserError("match: the baseline trains no step")
        steps = matched_steps(
            lambda steps: price(self._run(_with_steps(tree, steps))[0]),
            price(base),
            base.train.steps,
        )
        return _with_steps(tree, steps), dense

    def _run(self, tree: Mapping[str, Any], path: str = "") -> tuple[RunSpec, str]:
        key = repr(tree)
        if key not in self._runs:
            spec = run_of(tree, path) if "then" in tree else self._shared.run(tree, path)
            spec = self._whole(spec)
            self._runs[key] = spec, signature(spec)
        return self._runs[key]


def _as_dense(tree: dict[str, Any], baseline: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree that a baseline changes; one without routes has none in a phase of `then`
    either, however that writes them."""
    then = tree.get("then")
    if leaves_of(baseline).get("routes") != [] or not isinstance(then, Mapping):
        return tree
    kept: dict[str, Any] = {}
    for name, leaf in leaves_of(then).items():
        routes = _ROUTES.match(name)  # a phase that says nothing else is still a phase
        kept |= {f"{routes[1]}routes": []} if routes else {name: leaf}
    return {**tree, "then": with_fields({}, kept, "then")}


def _with_steps(tree: Mapping[str, Any], steps: int) -> dict[str, Any]:
    return with_fields(tree, {STEPS: steps}, "match")


class SharedParts:
    """Decodes the trees of runs; equal parts of them once."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], Any] = {}

    def run(self, tree: Mapping[str, Any], path: str = "") -> RunSpec:
        """Return the run of a tree, as `decode` does.

        Raises:
            UserError: as `decode`.
        """
        return decode(RunSpec, {name: self._part(name, v) for name, v in tree.items()}, path)

    def _part(self, name: str, value: Any) -> Any:
        if name not in TOP:
            return value
        key = name, repr(value)
        if key not in self._parts:
            self._parts[key] = decode_field(RunSpec, name, value)
        return self._parts[key]
