"""A sweep's records as data frames: one row a trial, one row a cell, one row a logged value."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.gaps import half_width, recorded_gaps
from tread_lab.records.layout import Lab, RunFolder, SweepFolder
from tread_lab.records.names import parameters
from tread_lab.spec.decode import decode, encode
from tread_lab.spec.errors import UserError
from tread_lab.spec.guidance import GuidanceSpec, in_short
from tread_lab.spec.run import RunSpec
from tread_lab.spec.signature import signature

# From the least to the most remarkable: a cell has the last state in which one of its seeds is.
STATES = ("completed", "pending", "interrupted", "running", "stopped", "diverged", "failed")
FIRST = ("run", "role", "seed", "state", "reason", "baseline", "cell")
WHOLE = ("route_start", "route_end", "steps_done")
DELTA = "delta/"
ROUTE_AXES = ("start", "end", "route", "routes", "rate")
LOW, HIGH, COUNT, UNIT = ":low", ":high", ":n", ":unit"
OWN = (LOW, HIGH, COUNT)  # what a trial's gap has beside its mean


@dataclass(frozen=True)
class _Record:
    """What the folder of one run says; numbers are there for a completed run only."""

    state: str
    reason: str = ""
    steps: int | None = None
    costs: dict[str, float] = field(default_factory=dict)
    evaluations: dict[str, dict[str, Any]] = field(default_factory=dict)  # by signature
    losses: dict[str, Path] = field(default_factory=dict)  # by signature
    folders: int = 0  # evaluations begun, those without numbers too


@dataclass
class Memory:
    """What earlier readings of a sweep found, so that only what has changed is read again.

    Attributes:
        records: by run, with the stamp of its folder; only runs that have ended and whose
            evaluations are whole.
        parameters: by run, `names.parameters` of its spec.
    """

    records: dict[str, tuple[_Stamp, _Record]] = field(default_factory=dict)
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)


_Stamp = tuple[int, int]  # of result.json and of the folder of evaluations, in nanoseconds


@dataclass(frozen=True)
class _Gaps:
    """The gaps of a run as columns, an interval's ends beside each, or why there are none."""

    columns: dict[str, float]
    problem: str = ""


def trials_frame(
    lab: Lab, sweep: str | SweepFolder, *, memory: Memory | None = None
) -> pd.DataFrame:
    """One row per trial of the plan, in plan order.

    Columns: run, role, seed, state, reason, baseline (the run it is compared with), cell (its axis
    values as text), the axis values, the parameters of `names.parameters`, steps_done, metrics of
    the evaluations, gaps (`gap/heldout`, with `:low` and `:high` and over how many images, `:n`)
    and costs. Metric columns are those with `/` or `@` in their name. **Only completed runs have
    numbers**: any other trial is a row with its state and NaN.

    Where a sweep has baselines of several kinds, each has the axis values in which they differ.

    Args:
        memory: makes the next reading of the same sweep quick.

    `frame.attrs["axes"]` lists the axis columns, `frame.attrs["planned"]` those of the evaluations
    that this sweep asked for.
    """
    plan = with_baseline_cells(_plan(lab, sweep))
    memory = Memory() if memory is None else memory
    records = _records(lab, plan, memory)
    names, gaps = _metric_names(plan, records), _gaps(plan, records)
    frame = pd.DataFrame(
        _row(trial, records[trial["run"]], gaps[trial["run"], trial["baseline"]], names, memory)
        for trial in plan["trials"]
    )
    axes = list(dict.fromkeys(axis for trial in plan["trials"] for axis in trial["cell"]))
    metrics = metric_columns(frame)
    order = dict.fromkeys([*FIRST, *axes, *frame.columns.drop([*FIRST, *metrics], errors="ignore")])
    frame = frame.reindex(columns=[*order, *metrics])
    whole = [*(axis for axis in axes if _is_whole(frame[axis])), *WHOLE]
    types: dict[str, Any] = {**dict.fromkeys(metrics, float), **dict.fromkeys(whole, "Int64")}
    frame = frame.astype({column: kind for column, kind in types.items() if column in frame})
    planned = [signature(spec) for spec in plan.get("evaluate") or ()]
    asked = {column: None for (sig, _), column in names.items() if sig in planned}
    frame.attrs |= {"axes": axes, "planned": list(asked)}
    return frame


def with_baseline_cells(plan: dict[str, Any]) -> dict[str, Any]:
    """The plan; several baselines get the axis values that all trials they serve have in common.

    A sweep over precisions has a dense run in each: these are cells, not seeds of one.
    """
    served: dict[str, list[dict[str, Any]]] = {}
    for trial in plan["trials"]:
        served.setdefault(trial["baseline"], []).append(trial["cell"])
    shared = {
        run: {a: v for a, v in cells[0].items() if all(cell.get(a) == v for cell in cells)}
        for run, cells in served.items()
        if run is not None
    }
    axes = dict.fromkeys(axis for cell in shared.values() for axis in cell)
    told = [
        a for a in axes if a not in ROUTE_AXES and _varies(cell.get(a) for cell in shared.values())
    ]
    own = {run: {a: cell[a] for a in told if a in cell} for run, cell in shared.items()}
    trials = [{**t, "cell": t["cell"] or own.get(t["run"], {})} for t in plan["trials"]]
    return {**plan, "trials": trials}


def cells_frame(trials: pd.DataFrame) -> pd.DataFrame:
    """One row per cell of `trials_frame`'s rows, its seeds brought together, in plan order.

    Every metric has its mean over completed seeds, `:low` and `:high`, `:n` and `:unit`: the
    interval is over `seeds` where there are two or more, else the one seed's own over `images`
    (gaps only), else absent. `seeds` counts the planned seeds, `state` is `completed` only if all
    are; else it is that of the seed that went worst.
    """
    metrics = [column for column in metric_columns(trials) if not column.endswith(OWN)]
    groups = trials.groupby(["role", "cell"], sort=False)
    dropped = ("run", "seed", "baseline", "state", "reason", "steps_done", "role", "cell")
    fixed = [c for c in trials.columns if not _is_metric(c) and c not in dropped]
    columns: dict[str, Any] = {
        "state": groups["state"].agg(lambda states: max(states, key=STATES.index)),
        "reason": groups["reason"].agg(lambda reasons: next(filter(None, reasons), "")),
        **{name: groups[name].first() for name in fixed},
        "seeds": groups.size(),
        "completed": groups["state"].agg(lambda states: int((states == "completed").sum())),
    }
    for metric in metrics:
        columns |= _over_seeds(groups, metric, has_own=metric + LOW in trials.columns)
    cells = pd.DataFrame(columns).reset_index()
    cells.attrs["axes"] = list(trials.attrs.get("axes", ()))
    return cells


def delta_column(metric: str) -> str:
    """The column with a metric's difference to the baseline: a gap is one already."""
    return metric if metric.startswith(("gap/", DELTA)) else DELTA + metric


def with_delta(trials: pd.DataFrame, metric: str) -> pd.DataFrame:
    """`trials` with `delta_column(metric)`: each trial's value less that of its own baseline."""
    column = delta_column(metric)
    if column == metric:
        return trials
    values = trials.drop_duplicates("run").set_index("run")[metric]
    return trials.assign(**{column: trials[metric] - trials["baseline"].map(values).astype(float)})


def history_frame(
    lab: Lab, sweep: str | SweepFolder, keys: Iterable[str] | None = None
) -> pd.DataFrame:
    """Every logged value of every run of the sweep: run, step, key, value; each run once.

    Args:
        keys: the keys to keep; all where absent.
    """
    wanted = None if keys is None else set(keys)
    columns: dict[str, list[Any]] = {"run": [], "step": [], "key": [], "value": []}
    for name in dict.fromkeys(trial["run"] for trial in _plan(lab, sweep)["trials"]):
        for entry in lab.run(name).entries():
            if wanted is None or entry.key in wanted:
                values = (name, entry.step, entry.key, entry.value)
                for column, value in zip(columns.values(), values):
                    column.append(value)
    return pd.DataFrame(columns)


def metric_columns(frame: pd.DataFrame) -> list[str]:
    """The columns that were measured, intervals included: evaluations, then gaps, then costs."""
    groups = ("gap/", "cost/", "throughput/")
    found = [str(column) for column in frame.columns if _is_metric(column)]
    order = {c: next((k for k, g in enumerate(groups, 1) if c.startswith(g)), 0) for c in found}
    return sorted(found, key=lambda column: order[column])


def cell_label(cell: dict[str, Any]) -> str:
    """`start=2 end=8 rate=0.5`: the axis values of a trial in one text."""
    return " ".join(f"{axis}={_text(value)}" for axis, value in cell.items())


def _is_metric(column: object) -> bool:
    return any(mark in str(column) for mark in ("/", "@"))


def _plan(lab: Lab, sweep: str | SweepFolder) -> dict[str, Any]:
    folder = lab.known_sweep(sweep) if isinstance(sweep, str) else sweep
    plan = folder.read_plan()
    if plan is None:
        raise UserError(f"sweep {folder.name} has no plan in {folder.path}")
    return plan


def _varies(values: Iterable[Any]) -> bool:
    return len({repr(value) for value in values}) > 1


def _baseline_label(trial: dict[str, Any]) -> str:
    return f"baseline {cell_label(trial['cell'])}".rstrip()


def _records(lab: Lab, plan: dict[str, Any], memory: Memory) -> dict[str, _Record]:
    """Every run of the plan read once, however many trials share it."""
    names = [trial["run"] for trial in plan["trials"]]
    baselines = [trial["baseline"] for trial in plan["trials"] if trial["baseline"]]
    planned = [signature(spec) for spec in plan.get("evaluate") or ()]
    known = dict.fromkeys([*names, *baselines])
    return {name: _remembered(lab.run(name), planned, memory) for name in known}


def _remembered(run: RunFolder, planned: list[str], memory: Memory) -> _Record:
    """The record of a run, read only if its folder has changed since it was read whole."""
    stamp = _stamp(run)
    known = memory.records.get(run.name)
    if known is not None and known[0] == stamp:
        return known[1]
    record = _record(run, planned)
    whole = len(record.evaluations) == record.folders
    if record.state == "completed" and whole and stamp is not None:
        memory.records[run.name] = (stamp, record)
    return record


def _stamp(run: RunFolder) -> _Stamp | None:
    try:
        result = os.stat(run.path / "result.json").st_mtime_ns  # noqa: PTH116 - called often
        return result, os.stat(run.path / "evaluations").st_mtime_ns  # noqa: PTH116
    except OSError:
        return None


def _record(run: RunFolder, planned: list[str]) -> _Record:
    """One run, the evaluations of the plan first and in its order."""
    result = run.result()
    if result is None:
        return _Record(run.state())
    state, reason, steps = str(result["state"]), str(result.get("reason", "")), result.get("step")
    if state != "completed":
        return _Record(state, reason, steps)
    trees = {folder.path: folder.read() for folder in run.evaluations()}
    done = {path: tree for path, tree in trees.items() if tree is not None}
    kinds = {path: tree["spec"].get("kind") for path, tree in done.items()}
    place = {name: number for number, name in enumerate(planned)}
    order = sorted(done, key=lambda path: place.get(path.name, len(place)))
    return _Record(
        state,
        reason,
        steps,
        costs=_costs(result),
        evaluations={path.name: done[path] for path in order},
        losses={p.name: p / "losses.npz" for p, kind in kinds.items() if kind == "heldout_loss"},
        folders=sum(1 for _ in run.path.glob("evaluations/*")),
    )


def _costs(result: dict[str, Any]) -> dict[str, float]:
    """The metrics of a result that are numbers."""
    metrics = result.get("metrics") or {}
    return {key: float(value) for key, value in metrics.items() if isinstance(value, int | float)}


def _row(
    trial: dict[str, Any],
    record: _Record,
    gaps: _Gaps,
    names: dict[tuple[str, str], str],
    memory: Memory,
) -> dict[str, Any]:
    values = {
        names[sig, metric]: value
        for sig, tree in record.evaluations.items()
        for metric, value in _numbers(tree).items()
    }
    known = memory.parameters.get(trial["run"])
    if known is None:
        known = parameters(decode(RunSpec, trial["spec"]))
        memory.parameters[trial["run"]] = known
    role = trial["role"]
    return {
        "run": trial["run"],
        "role": role,
        "seed": trial["seed"],
        "state": record.state,
        "reason": gaps.problem or record.reason,
        "baseline": trial["baseline"],
        "cell": cell_label(trial["cell"]) if role != "baseline" else _baseline_label(trial),
        **{axis: _plain(value) for axis, value in trial["cell"].items()},
        **{name: None if value == "" else value for name, value in known.items()},
        "steps_done": record.steps,
        **values,
        **gaps.columns,
        **record.costs,
    }


def _gaps(plan: dict[str, Any], records: dict[str, _Record]) -> dict[tuple[str, str | None], _Gaps]:
    """(run, baseline) -> their gaps; in order of baselines, so that each of them is read once."""
    pairs = {(trial["run"], trial["baseline"]) for trial in plan["trials"]}
    found = {}
    for run, baseline in sorted(pairs, key=lambda pair: (pair[1] or "", pair[0])):
        other = records[baseline].losses if baseline else {}
        try:
            gaps = recorded_gaps(records[run].losses, other)
        except UserError as error:
            found[run, baseline] = _Gaps({}, str(error))
            continue
        columns: dict[str, float] = {}
        for name, gap in gaps.items():
            ends = {name + LOW: gap.low, name + HIGH: gap.high}
            columns |= {name: gap.mean, **ends, name + COUNT: gap.n}
        found[run, baseline] = _Gaps(columns)
    return found


def _numbers(tree: dict[str, Any]) -> dict[str, float]:
    """The metrics of an evaluation and what it cost."""
    costs = {key: value for key, value in tree.items() if key.startswith("cost/")}
    return {**tree["metrics"], **costs}


def _metric_names(plan: dict[str, Any], records: dict[str, _Record]) -> dict[tuple[str, str], str]:
    """(evaluation signature, metric) -> column.

    One metric of several evaluations is told apart by what differs in their specs: `fd@1k w=2`.
    A single planned one keeps the plain name beside those that another sweep asked for.
    """
    planned = {signature(spec) for spec in plan.get("evaluate") or ()}
    specs: dict[str, dict[str, Any]] = {}
    sources: dict[str, list[str]] = {}
    for record in records.values():
        for sig, tree in record.evaluations.items():
            if sig not in specs:
                specs[sig] = _flat(tree["spec"])
            for metric in _numbers(tree):
                if sig not in (known := sources.setdefault(metric, [])):
                    known.append(sig)
    names = {}
    for metric, sigs in sources.items():
        suffix = _differences({sig: specs[sig] for sig in sigs})
        plain = [sig for sig in sigs if sig in planned]
        for sig in sigs:
            names[sig, metric] = metric if plain == [sig] else metric + suffix[sig]
    return names


def setting_names(specs: Sequence[Any]) -> list[str]:
    """What tells evaluations of one kind apart: `w=1`, `w=1.5 SG(0.5/0.9)`."""
    flat = {str(number): _flat(encode(spec)) for number, spec in enumerate(specs)}
    return [name.strip() for name in _differences(flat).values()]


def _differences(specs: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Signature -> ` key=value ...` of the fields in which these specs differ: ` w=1.5 SG(0/0.5)`.

    How guidance combines its branches speaks for itself and needs no key; where all of it is CFG,
    the weight says enough, and the routes are said only where nothing else differs.
    """
    fields = dict.fromkeys(field for spec in specs.values() for field in spec)
    fields.pop("metrics", None)
    values = {field: {repr(spec.get(field)) for spec in specs.values()} for field in fields}
    plain = {repr(""), repr("CFG")}
    differing = [f for f, found in values.items() if len(found) > 1 and not found <= plain]
    short = _named(specs, [field for field in differing if not field.endswith(".routes")])
    return short if len(set(short.values())) == len(short) else _named(specs, differing)


def _named(specs: dict[str, dict[str, Any]], fields: Sequence[str]) -> dict[str, str]:
    return {
        sig: "".join(_difference(field, spec.get(field)) for field in fields)
        for sig, spec in specs.items()
    }


def _difference(field: str, value: Any) -> str:
    name = field.rpartition(".")[2]
    if name == "method" or value is None:
        return f" {value}" if value else ""
    return f" {name}={_text(value)}"


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        value = in_short(decode(GuidanceSpec, value)) if key == "guidance" else value
        found |= (
            _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        )
    return found


def _over_seeds(groups: Any, metric: str, *, has_own: bool) -> dict[str, Any]:
    """Mean, interval, count and the interval's unit of one metric over the seeds that have it."""
    mean, n = groups[metric].mean(), groups[metric].count()
    half = half_width(groups[metric].std(), n.to_numpy())
    low, high = mean - half, mean + half
    units = np.where(n >= 2, "seeds", np.where((n == 1) & has_own, "images", ""))
    counted = n
    if has_own:
        counted = n.where(n != 1, groups[metric + COUNT].mean()).astype(int)
        low = low.where(n != 1, groups[metric + LOW].mean())
        high = high.where(n != 1, groups[metric + HIGH].mean())
    unit = pd.Series(units, index=mean.index)
    ends = {metric + LOW: low, metric + HIGH: high}
    return {metric: mean, **ends, metric + COUNT: counted, metric + UNIT: unit}


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(_plain(value))


def _is_whole(column: pd.Series) -> bool:
    """Whether an axis has whole numbers, which a missing baseline's cell would turn into floats."""
    return pd.api.types.is_float_dtype(column) and bool((column.dropna() % 1 == 0).all())


def _plain(value: Any) -> Any:
    """A value as a column holds it: scalars as they are, lists and mappings as compact JSON."""
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, separators=(",", ":"))
    return value
