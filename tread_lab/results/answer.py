"""The answer of a sweep in three parts, result, certainty and cost, and what else was found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from tread_lab.config.labels import without_axis
from tread_lab.config.sweep import QUESTIONS
from tread_lab.config.units import counted, ratio
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import (
    DEVICE_HOURS,
    GAP_HELDOUT,
    HELDOUT_LOSS,
    TRAIN_FLOPS,
    delta_column,
    value_text,
)
from tread_lab.records.run_state import ADVICE, RunState
from tread_lab.results.cells import (
    COUNT,
    HIGH,
    LOW,
    NO_RESULT,
    UNIT,
    cells_frame,
    deviation_of,
    other_axes,
    over_dense,
)
from tread_lab.results.intervals import CONFIDENCE, smallest_gap, t_interval, worse_over_seeds
from tread_lab.results.ranking import (
    better_than_dense,
    lead,
    ranked_cells,
    ranking_key,
    scales_loss,
    started_cells,
    tied_with_best,
    training_price,
)
from tread_lab.results.texts import (
    interval_text,
    joined,
    measured_as,
    number,
    outcomes,
    outcomes_text,
    result_texts,
    routed,
)

NAMED = 2  # cells without a result of one state that are named with their reasons
FEWER = 0.99  # share of dense's FLOPs, above which dense itself shows what they reach
ROUNDING = 1e-6  # share by which a gap may differ from the difference of the losses' means
ENDS = [GAP_HELDOUT, GAP_HELDOUT + LOW, GAP_HELDOUT + HIGH]


@dataclass(frozen=True)
class Answer:
    """The answer of a sweep.

    Attributes:
        result: the finding: of the first axis beside the route's, and of the best cell.
        certainty: over how many seeds, which cells are tied, of how many the best was chosen.
        cost: of the best cell beside dense.
        more: further findings, a sentence or two each.
        cell: the name of the best cell; empty without an answer.
        better: whether the interval of that cell shows it to be better than dense.
    """

    result: str
    certainty: str = ""
    cost: str = ""
    more: tuple[str, ...] = ()
    cell: str = ""
    better: bool = False

    @property
    def text(self) -> str:
        """All parts in one paragraph."""
        parts = (self.result, self.certainty, self.cost, *self.more)
        return " ".join(_lines(*parts).splitlines())


def answer(
    lab: Lab,
    frame: pd.DataFrame,
    *,
    complete: bool = True,
    equal_steps: pd.DataFrame | None = None,
) -> Answer:
    """Return the answer from the rows of `trials_frame`, by paired held-out loss.

    If an axis changes the baseline, cells are ranked by the loss itself.

    Args:
        complete: whether every trial has ended; if not, the answer is marked provisional.
        equal_steps: rows of `SweepReader.equal_steps`, if the sweep has another question.
    """
    key = HELDOUT_LOSS if ranking_key(frame) == HELDOUT_LOSS else GAP_HELDOUT
    cells = ranked_cells(frame, key if GAP_HELDOUT in frame else None)
    trials = cells[cells["role"] == "trial"]
    done = trials[trials["state"] == RunState.COMPLETED]
    done = done[done[GAP_HELDOUT].notna()] if GAP_HELDOUT in frame else done.iloc[:0]
    missing = _missing(frame, trials, len(done), complete=complete)
    if done.empty:
        return _no_answer(frame, missing, complete=complete)
    best, of_axes = done.iloc[0], [*_by_axis(frame)]
    first = not complete or 2 * len(done) < len(trials)
    asked = [*of_axes[:1], *of_axes[1:][-1:]] if complete else []  # the last: what varies most
    result = _lines(
        missing if first else "",
        *asked,
        _finding(frame, cells, done, complete=complete),
        *_controls(lab, frame, cells, best),
        "" if equal_steps is None else _at_equal_steps(equal_steps),
        "" if first else missing,
    )
    power, undecided = _power(frame, done), bool(best[ENDS[1]] <= 0 <= best[ENDS[2]])
    certainty = _lines(
        _paired(best),
        power if undecided else "",
        _rivals(lab, frame, [*done["cell"]], key) if complete and len(done) > 1 else "",
        _chosen(frame, len(done)),
    )
    counts, over = outcomes(done[ENDS[1]], done[ENDS[2]], 1), measured_as(done, GAP_HELDOUT)
    compared = outcomes_text(counts, "cells", over) * bool(counts and len(done) > 1)
    of_all = (_range(done), compared, _average(frame, done), *_equivalent(frame, done))
    more = [*(text for text in of_axes if text not in asked), *of_all, "" if undecided else power]
    if key == HELDOUT_LOSS:
        more.append(
            "Cells have different baselines, so they are ranked by held-out loss, not by gap."
        )
    better = bool(best[ENDS[2]] < 0)
    cost = _cost(frame, done.head(1))
    return Answer(result, certainty, cost, tuple(filter(None, more)), str(best["cell"]), better)


def _lines(*parts: str) -> str:
    return "\n".join(filter(None, parts))


def _missing(frame: pd.DataFrame, trials: pd.DataFrame, done: int, *, complete: bool) -> str:
    """Return `1 of 3 cells has a result; 2 diverged (...)`: counts, reasons and a remedy."""
    if done == len(trials):
        return ""
    lost = [
        (RunState(str(state)).label, own, _reasons(frame, own["cell"], str(state)))
        for state, own in trials.groupby("state", sort=False)
        if RunState(str(state)).lacks_result
    ]
    advice = "".join(f" {ADVICE[label]}" for label, *_ in lost if label in ADVICE)
    if len(lost) == 1 and len(lost[0][1]) == len(trials):
        whole = f"all {len(trials)} cells" if len(trials) > 1 else "the only cell"
        return f"No result: {whole} {lost[0][0]} ({lost[0][2]}).{advice}"
    have = ("has" if done == 1 else "have") + " a result" + ("" if complete else " so far")
    texts = [f"{done} of {counted(len(trials), 'cell')} {have}"]
    texts += [f"{len(own)} {label} ({reasons})" for label, own, reasons in lost]
    if "reason" in trials and (alone := int(trials["reason"].isin(NO_RESULT.values()).sum())):
        texts.append(f"{alone} completed without a baseline to compare with")
    return f"{'; '.join(texts)}.{advice}"


def _reasons(frame: pd.DataFrame, cells: pd.Series[Any], state: str) -> str:
    """Return the names of cells of one state, each with its seeds and reason."""
    texts = []
    for cell in cells.head(NAMED):
        rows = frame[(frame["role"] == "trial") & (frame["cell"] == cell)]
        own = rows[rows["state"] == state]
        seeds = f" seed {', '.join(map(str, own['seed']))}" if len(rows) > 1 else ""
        reason = str(own["reason"].iloc[0] or state).partition("; try ")[0]
        texts.append(f"{routed(str(cell))}{seeds}: {reason}")
    more = len(cells) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more else "")


def _finding(
    frame: pd.DataFrame, cells: pd.DataFrame, done: pd.DataFrame, *, complete: bool
) -> str:
    """Return what the intervals of all cells show: every word on a cell is its own interval's.

    One seed speaks of this pair of runs alone. Before the end no cell is called the best.
    """
    best, tried = done.iloc[0], len(done)
    name, (gap, low, high) = routed(str(best["cell"])), best[ENDS]
    dense = f"dense {frame.attrs.get('comparison', '')}".strip()
    own = measured_as(done.head(1), GAP_HELDOUT)
    apart = f"a gap of {interval_text(GAP_HELDOUT, gap, low, high, over=own)}"
    losses = _losses(frame, cells, best) if HELDOUT_LOSS in frame else ""
    result = f"held-out loss {losses}, {apart}" if losses else f"{apart} in held-out loss"
    lowest = f", lowest of {tried}," if tried > 1 else ""
    so_far = "" if complete else "Provisional, best so far: "
    if best[GAP_HELDOUT + UNIT] != "seeds":
        side = "below" if gap < 0 else "above"
        return (
            f"{so_far or 'With one seed, '}run {name}{lowest} ended {number(abs(gap))} {side} its"
            f" {dense.replace('dense', 'dense run')}: {result}."
        )
    outcome = f"cannot be distinguished from {dense}"
    if high < 0 or low > 0:
        outcome = f"is {'better' if high < 0 else 'worse'} than {dense}"
    if so_far:
        none = f"No cell is as good as {dense} so far.\n" * bool(low > 0)
        return f"{none}{so_far}{name}{lowest} by its own interval alone {outcome}: {result}."
    if high < 0 and (started := started_cells(frame)) > 1:
        outcome += ", also" if better_than_dense(frame, done) else " by its own interval, but not"
        family = (
            f"as the lowest of {tried}" if tried == started else f"among {started} started cells"
        )
        outcome += f" at 95% {family}"
    none = ""
    if tried > 1 and (done[ENDS[1]] > 0).all():
        none = f"No cell is as good as {dense}: each is worse by its own interval.\n"
    elif tried > 1 and not (done[ENDS[2]] < 0).any():
        none = f"No cell is shown to be better than {dense}.\n"
        outcome = outcome.replace(dense, "it")
    return f"{none}{name}{lowest} {outcome}: {result}."


def _controls(
    lab: Lab, frame: pd.DataFrame, cells: pd.DataFrame, best: pd.Series[Any]
) -> Iterator[str]:
    """Yield what each control reaches of the best cell's gain without a route."""
    own = cells[(cells["role"] == "control") & cells[GAP_HELDOUT].notna()]
    for k, control in own.iterrows():
        ahead = lead(lab, frame, str(best["cell"]), str(control["cell"]))
        if ahead is None:
            continue
        gap = interval_text(
            GAP_HELDOUT, *control[ENDS], over=measured_as(own.loc[[k]], GAP_HELDOUT)
        )
        ends, of_lead = (ahead.mean, ahead.low, ahead.high), f"95% over {ahead.n} {ahead.unit}"
        apart, share = interval_text(GAP_HELDOUT, *ends, over=of_lead), ""
        if control[GAP_HELDOUT] < 0 and best[GAP_HELDOUT] < 0:
            share = f", {control[GAP_HELDOUT] / best[GAP_HELDOUT]:.0%} of it by point estimate"
        name = routed(str(best["cell"]))
        yield (
            f"The {control['cell']} reaches {gap} without a route{share}; {name} minus the control:"
            f" {apart}."
        )


def _by_axis(frame: pd.DataFrame) -> Iterator[str]:
    """Yield what each axis beside the route does, over the settings that all its values share;
    at last, along which axis means vary most.

    Gaps are to each value's own baseline. Values are compared by held-out loss, within seeds, or by
    the gap where losses along the axis are of several scales.
    """
    trials, spans = frame[(frame["role"] == "trial") & frame[GAP_HELDOUT].notna()], {}
    for axis in other_axes(frame):
        if trials[axis].nunique() in (1, trials["cell"].nunique()):
            continue
        setting = trials["cell"].map(lambda cell, axis=axis: without_axis(cell, axis))
        rows = trials.assign(setting=setting, at=trials[axis].map(str))
        by_gap = HELDOUT_LOSS not in frame or scales_loss(axis, trials[axis])
        compared = GAP_HELDOUT if by_gap else HELDOUT_LOSS
        gaps, losses = (
            rows.pivot_table(metric, ["seed", "setting"], "at", sort=False)
            .dropna()
            .groupby("seed")
            .mean()
            for metric in (GAP_HELDOUT, compared)
        )
        if losses.empty:
            continue
        means = losses.mean().sort_values()
        spans[axis] = float(means.iloc[-1] - means.iloc[0])
        texts = [f"{at} {value_text(GAP_HELDOUT, *_mean(gaps[at]))}" for at in gaps]
        over = f"95% over {len(gaps)} seeds" if len(gaps) > 1 else "one seed"
        yield (
            f"By {axis}, {_verdict(losses[means.index], compared)}.\nMean gap, averaged over the"
            f" other settings: {', '.join(texts)} ({over})."
        )
    if len(spans) > 1:
        order = sorted(spans, key=lambda axis: -spans[axis])
        yield f"Means vary most along {', then '.join(f'{a} ({number(spans[a])})' for a in order)}."


def _verdict(losses: pd.DataFrame, metric: str) -> str:
    """Return which value of an axis is best: a row is a seed, the first column the least mean."""
    first, *others = map(str, losses)
    worse = worse_over_seeds(losses.to_numpy(float), chosen=True, cells=len(losses.columns))
    if worse is None:
        return f"{first} is lowest in one seed"
    alike = [at for at, is_worse in zip(others, worse[1:]) if not is_worse]
    found = f"{first} is best" if not alike else f"{joined([first, *alike])} are tied"
    if len(others) > 1:
        return found
    apart = value_text(delta_column(metric), *_mean(losses[others[0]] - losses[first]))
    return f"{found}: {others[0]} minus {first} {apart} in held-out loss"


def _mean(values: pd.Series[float]) -> tuple[float, float, float]:
    """Return the mean over seeds with the ends of its interval, NaN of one seed."""
    if len(values) < 2:
        return float(values.iloc[0]), np.nan, np.nan
    return t_interval(np.asarray(values, dtype=np.float64))


def _paired(best: pd.Series[Any]) -> str:
    """Return the units of the best cell's interval: seeds, or images of one seed."""
    n = int(best[GAP_HELDOUT + COUNT])
    if best[GAP_HELDOUT + UNIT] == "seeds":
        return (
            f"{n} seeds, each paired with its own dense run; the interval is of their mean, and a"
            " new seed can lie outside."
        )
    return (
        f"One seed, indicative only; use three or more. The interval is over {n} held-out images of"
        " one pair of runs: another seed can lie outside."
    )


def _rivals(lab: Lab, frame: pd.DataFrame, names: Sequence[str], key: str) -> str:
    """Return which cells the best is told apart from, by paired differences."""
    tied = tied_with_best(lab, frame, names, key)
    at = "at 95% for all pairs together" if len(names) > 2 else "at 95%"
    if not tied:
        return f"Every other cell is above it {at}, by paired differences."
    if len(tied) == len(names) - 1:
        return f"All {len(names)} cells are tied {at}, by paired differences."
    return f"Tied with it {at}, by paired differences: {joined(tied)}."


def _chosen(frame: pd.DataFrame, cells: int) -> str:
    """Return from how many cells the best was chosen, and how many more count as tried."""
    chosen = f"The lowest of {cells} was chosen by the same numbers: its gap is optimistic."
    lost = started_cells(frame) - cells
    too = f"Started as well, without a result: {counted(lost, 'cell')}."
    return _lines(chosen * (cells > 1), too * (lost > 0))


def _average(frame: pd.DataFrame, done: pd.DataFrame) -> str:
    """Return the mean gap over all cells, which no choice among them biases."""
    rows = frame[(frame["role"] == "trial") & frame["cell"].isin(done["cell"])]
    apart = rows.pivot_table(GAP_HELDOUT, "seed", "cell").dropna().mean(axis=1)
    if len(done) < 3 or len(apart) < 2:
        return ""
    interval = interval_text(GAP_HELDOUT, *_mean(apart), over=f"95% over {len(apart)} seeds")
    return f"Averaged over the {len(done)} cells: {interval}."


def _range(done: pd.DataFrame) -> str:
    """Return the least and the largest gap with their cells."""
    if len(done) < 2:
        return ""
    ends = done.sort_values(GAP_HELDOUT, kind="stable").iloc[[0, -1]]
    least, most = (
        f"{value_text(GAP_HELDOUT, *cell[ENDS])} ({routed(str(cell['cell']))})"
        for _, cell in ends.iterrows()
    )
    return f"Gaps range from {least} to {most}."


def _at_equal_steps(frame: pd.DataFrame) -> str:
    """Return how many cells differ from dense at equal steps, each by its own interval."""
    cells = ranked_cells(frame, GAP_HELDOUT)
    done = cells[(cells["role"] == "trial") & (cells["state"] == RunState.COMPLETED)]
    counts = outcomes(done[ENDS[1]], done[ENDS[2]], 1)
    texts = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    return f"At equal steps instead, of {sum(counts.values())} cells: {texts}." if counts else ""


def _power(frame: pd.DataFrame, done: pd.DataFrame) -> str:
    """Return the smallest gap that the seeds can show."""
    deviation, done = deviation_of(frame), done[done[GAP_HELDOUT + UNIT] == "seeds"]
    if done.empty or deviation <= ROUNDING * abs(float(done[GAP_HELDOUT].iloc[0])):
        return ""
    seeds = int(done[GAP_HELDOUT + COUNT].iloc[0])
    return (
        f"In a cell chosen beforehand, {seeds} seeds detect a gap of"
        f" {number(smallest_gap(deviation, seeds))} with 80% power; the best of many needs more."
        f" (Cells deviate over seeds by {number(deviation)}, root mean square.)"
    )


def _equivalent(frame: pd.DataFrame, done: pd.DataFrame) -> Iterator[str]:
    """Yield which cells are within the sweep's margin of dense: two one-sided tests at 5%, each
    cell by itself (Schuirmann 1987)."""
    margin, done = frame.attrs.get("margin"), done[done[GAP_HELDOUT + UNIT] == "seeds"]
    if margin is None or done.empty:
        return
    n = done[GAP_HELDOUT + COUNT].to_numpy(int)
    half = (done[GAP_HELDOUT + HIGH] - done[GAP_HELDOUT]) / stdtrit(n - 1, (1 + CONFIDENCE) / 2)
    reach = done[GAP_HELDOUT].abs() + half * stdtrit(n - 1, CONFIDENCE)
    within = [*done.loc[reach < margin, "cell"]]
    tests = f"within {number(margin)} (two one-sided tests at 5%, each cell by itself)"
    yield f"Equivalent to dense {tests}: {joined(within) if within else 'no cell'}."


def _cost(frame: pd.DataFrame, best: pd.DataFrame) -> str:
    """Return what training the best cell costs beside dense."""
    price, at = training_price(frame), ("trial", best["cell"].iloc[0])
    if price not in frame or not (spent := result_texts(best, price)[0]):
        return ""
    share = float(over_dense(frame, price).get(at, np.nan))
    text = f"{routed(at[1])} takes {spent} a run, {ratio(share)} of dense's"
    if price == TRAIN_FLOPS and DEVICE_HOURS in frame:
        hours = f"{ratio(over_dense(frame, DEVICE_HOURS).get(at, np.nan))} of its device-hours"
        busy = bool(best["disturbed"].iloc[0]) if "disturbed" in best else False
        text += "; its times are disturbed" if busy else f" and {hours}"
    if frame.attrs.get("comparison") == QUESTIONS["train_flops"]:
        return f"{text}. Dense was given the same FLOPs."
    if share > FEWER:
        return f"{text}."
    return f"{text}. Dense with as many FLOPs was not run; try `match: train_flops` in the file."


def _losses(frame: pd.DataFrame, cells: pd.DataFrame, best: pd.Series[Any]) -> str:
    """Return `0.2468 against dense's 0.2534, 2.6% less`: of the best cell and of its baseline."""
    trials = (frame["cell"] == best["cell"]) & (frame["role"] == "trial")
    serves = frame["run"].isin(frame.loc[trials, "baseline"]) & (frame["role"] == "baseline")
    dense = cells_frame(frame[serves]).head(1)
    if dense.empty or not (text := result_texts(dense, HELDOUT_LOSS)[0]):
        return ""
    own = result_texts(cells.loc[[best.name]], HELDOUT_LOSS)[0]
    gap, loss = float(best[GAP_HELDOUT]), float(dense[HELDOUT_LOSS].iloc[0])
    if not math.isclose(float(best[HELDOUT_LOSS]) - loss, gap, abs_tol=ROUNDING * loss):
        return ""  # of other images or levels than the gap
    share = f"{number(100 * abs(gap / loss))}% {'less' if gap < 0 else 'more'}"
    if own.partition(" ")[0] == text.partition(" ")[0]:  # the spread over seeds hides the gap
        return f"{share} than dense's"
    return f"{own} against dense's {text}, {share}"


def _no_answer(frame: pd.DataFrame, missing: str, *, complete: bool) -> Answer:
    """Return what replaces the finding and its certainty."""
    alone = frame[frame["reason"].isin(NO_RESULT.values())]
    if not alone.empty:
        reason = str(alone["reason"].iloc[0]).replace("its baseline", "the baseline")
        why = f"{counted(len(alone), 'trial')} completed, but {reason}."
        return Answer(_lines(f"There is nothing to compare with. {why}", missing))
    if missing.startswith("No result"):
        return Answer(missing)
    none = "There is no answer." if complete else "There is no answer yet."
    return Answer(_lines(none, missing or "No trial is compared with a baseline."))
