"""The answer of a sweep and its certainty: best cell, rivals, and what the interval holds for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from tread_lab.config.labels import without_axis
from tread_lab.config.units import counted
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import GAP_HELDOUT, HELDOUT_LOSS, delta_column
from tread_lab.records.run_state import RunState
from tread_lab.results.cells import (
    COUNT,
    HIGH,
    LOW,
    NO_RESULT,
    UNIT,
    cells_frame,
    deviation_of,
    other_axes,
)
from tread_lab.results.intervals import CONFIDENCE, smallest_gap, t_interval
from tread_lab.results.ranking import (
    better_than_dense,
    lead,
    ranked_cells,
    ranking_key,
    started_cells,
    tied_with_best,
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

MOST_EFFECTS = 3  # of axes that the answer names
ROUNDING = 1e-6  # share by which a gap may differ from the difference of the losses' means
PROVISIONAL = (
    "Provisional: the sweep has not finished, and no cell is called better as the lowest of many"
    " yet. An interval is of a cell whose seeds have all ended. An early look leaves it valid if"
    " the number of seeds was fixed before."
)
ENDS = [GAP_HELDOUT, GAP_HELDOUT + LOW, GAP_HELDOUT + HIGH]


@dataclass(frozen=True)
class Answer:
    """The answer of a sweep.

    Attributes:
        sentence: the finding.
        certainty: what the finding supports, and what it does not.
        cell: the name of the best cell; empty without an answer.
    """

    sentence: str
    certainty: str
    cell: str = ""


def answer(lab: Lab, frame: pd.DataFrame, *, complete: bool = True) -> Answer:
    """Return the answer from the rows of `trials_frame`, by paired held-out loss.

    If an axis changes the baseline, cells are ranked by the loss itself.

    Args:
        complete: whether every trial has ended; if not, the answer is marked provisional.
    """
    if GAP_HELDOUT not in frame:
        return _no_answer(frame, complete=complete)
    key = HELDOUT_LOSS if ranking_key(frame) == HELDOUT_LOSS else GAP_HELDOUT
    cells = ranked_cells(frame, key)
    trials = (cells["role"] == "trial") & (cells["state"] == RunState.COMPLETED)
    done = cells[trials & cells[GAP_HELDOUT].notna()]
    if done.empty:
        return _no_answer(frame, complete=complete)
    best, name = done.iloc[0], str(done["cell"].iloc[0])
    tied = tied_with_best(lab, frame, list(done["cell"]), key)
    of_seeds = best[GAP_HELDOUT + UNIT] == "seeds"
    started, noun = started_cells(frame), "cell" if of_seeds else "run"
    n = int(best[GAP_HELDOUT + COUNT])
    certainty = _certainty(n, started, of_seeds=of_seeds)
    deviation = deviation_of(frame)
    if of_seeds and deviation > ROUNDING * abs(float(best[GAP_HELDOUT])):
        certainty += f" {_power(deviation, n)}"
    if not complete:
        certainty = f"{PROVISIONAL} {certainty}"
    moved = "Baselines differ between cells, which are ranked by held-out loss."
    parts = (
        moved if key == HELDOUT_LOSS else "",
        _finding(frame, cells, best, done, noun, complete=complete),
        _average(frame, done) if of_seeds and len(done) > 2 else "",
        *_controls(lab, frame, cells, best),
        _rivals(name, tied, len(done), started, noun) if complete else "",
        _equivalent(frame, done) if of_seeds else "",
        *(_by_axis(frame) if HELDOUT_LOSS in frame else ()),
        _left_out(frame, cells),
    )
    return Answer(" ".join(filter(None, parts)), certainty, name)


def _finding(
    frame: pd.DataFrame,
    cells: pd.DataFrame,
    best: pd.Series[Any],
    done: pd.DataFrame,
    noun: str,
    *,
    complete: bool,
) -> str:
    """Return what the intervals of all cells show: every word on a cell is its own interval's.

    One seed speaks of this pair of runs alone. Before the end no cell is called the best.
    """
    name = routed(str(best["cell"]))
    dense = f"dense {frame.attrs.get('comparison', '')}".strip()
    gap, low, high = best[ENDS]
    own = measured_as(done.loc[[best.name]], GAP_HELDOUT)
    apart, losses = f"a gap of {interval_text(GAP_HELDOUT, gap, low, high, over=own)}", ""
    if HELDOUT_LOSS in frame:
        losses = _losses(frame, cells, best)
    result = f"held-out loss {losses}, {apart}" if losses else f"{apart} in held-out loss"
    counts = outcomes(done[ENDS[1]], done[ENDS[2]], 1)
    tried, started = len(done), started_cells(frame)
    over = measured_as(done, GAP_HELDOUT)
    others = f" {outcomes_text(counts, f'{noun}s', over)}" if counts and tried > 1 else ""
    if noun == "run":
        lowest = f", lowest of {started}," if started > 1 else ""
        side = "below" if gap < 0 else "above"
        return (
            f"With one seed, run {name}{lowest} ended {number(abs(gap))} {side} its"
            f" {dense.replace('dense', 'dense run')}: {result}. Indicative only; use three or more"
            f" seeds.{others}"
        )
    if started == 1 and low > 0:
        return f"{name} costs quality here, against {dense}: {result}."
    if counts == {"worse": tried}:
        least = f"First of {tried}: {name}, {result}."
        every = "Every cell that has a result is worse by its own interval here"
        return f"{every}, against {dense}. {least}"
    outcome = f"cannot be distinguished from {dense}"
    if high < 0 or low > 0:
        outcome = f"is {'better' if high < 0 else 'worse'} than {dense}"
    if started == 1:
        return f"{name} {outcome}: {result}."
    if high < 0 and complete and better_than_dense(frame, done):
        outcome += f", also at 95% as the lowest of {started}"
    elif high < 0:
        outcome += " by its own interval"
        outcome += f", but not at 95% as the lowest of {started}" if complete else " alone"
    return f"Of {started} cells {name} has the lowest mean; it {outcome}: {result}.{others}"


def _controls(
    lab: Lab, frame: pd.DataFrame, cells: pd.DataFrame, best: pd.Series[Any]
) -> Iterator[str]:
    """Yield what each control reaches of the best cell's gain without a route."""
    own = cells[(cells["role"] == "control") & cells[GAP_HELDOUT].notna()]
    for k, control in own.iterrows():
        ahead = lead(lab, frame, str(best["cell"]), str(control["cell"]))
        if ahead is None:
            continue
        over = measured_as(own.loc[[k]], GAP_HELDOUT)
        gap = interval_text(GAP_HELDOUT, *control[ENDS], over=over)
        ends, of_lead = (ahead.mean, ahead.low, ahead.high), f"95% over {ahead.n} {ahead.unit}"
        apart, share = interval_text(GAP_HELDOUT, *ends, over=of_lead), ""
        if control[GAP_HELDOUT] < 0 and best[GAP_HELDOUT] < 0:
            share = f", by point estimate {control[GAP_HELDOUT] / best[GAP_HELDOUT]:.0%} as much"
        name = routed(str(best["cell"]))
        chosen = ", chosen by these numbers," if started_cells(frame) > 1 else ""
        yield (
            f"The {control['cell']}, dense, has {gap}{share}; {name}{chosen} minus the control:"
            f" {apart}."
        )


def _average(frame: pd.DataFrame, done: pd.DataFrame) -> str:
    """Return the mean gap over all cells, which no choice among them biases."""
    rows = frame[(frame["role"] == "trial") & frame["cell"].isin(done["cell"])]
    apart = rows.pivot_table(GAP_HELDOUT, "seed", "cell").dropna().mean(axis=1).to_numpy(float)
    if len(apart) < 2:
        return ""
    over = f"95% over {len(apart)} seeds"
    interval = interval_text(GAP_HELDOUT, *t_interval(apart), over=over)
    return f"Averaged over the {len(done)} cells: {interval}."


def _by_axis(frame: pd.DataFrame) -> Iterator[str]:
    """Yield what each axis beside the route does to the held-out loss, over all other settings.

    In each seed the values of trials that differ in the axis alone are paired, and averaged.
    """
    trials = frame[(frame["role"] == "trial") & frame[HELDOUT_LOSS].notna()]
    effects = []
    for axis in (axis for axis in other_axes(frame) if trials[axis].nunique() > 1):
        setting = trials["cell"].map(lambda cell, axis=axis: without_axis(cell, axis))
        rows = trials.assign(setting=setting, at=trials[axis].map(str))
        wide = rows.pivot_table(HELDOUT_LOSS, ["seed", "setting"], "at", sort=False)
        first, *others = wide.columns
        for other in others:
            apart = (wide[other] - wide[first]).dropna().groupby("seed").mean().to_numpy(float)
            if len(apart):
                effects.append((f"{axis}, {other} minus {first}", apart))
    for name, apart in effects[:MOST_EFFECTS]:
        ends = t_interval(apart) if len(apart) > 1 else (float(apart[0]), np.nan, np.nan)
        over = f"95% over {len(apart)} seeds"
        interval = interval_text(delta_column(HELDOUT_LOSS), *ends, over=over)
        yield f"By {name}: {interval} in held-out loss, averaged over the other settings."


def _equivalent(frame: pd.DataFrame, done: pd.DataFrame) -> str:
    """Return which cells are within the sweep's margin of dense: two one-sided tests at 5%, each
    cell by itself (Schuirmann 1987)."""
    margin = frame.attrs.get("margin")
    if margin is None:
        return ""
    done = done[done[GAP_HELDOUT + UNIT] == "seeds"]
    n = done[GAP_HELDOUT + COUNT].to_numpy(int)
    half = (done[GAP_HELDOUT + HIGH] - done[GAP_HELDOUT]) / stdtrit(n - 1, (1 + CONFIDENCE) / 2)
    reach = done[GAP_HELDOUT].abs() + half * stdtrit(n - 1, CONFIDENCE)
    within = [*done.loc[reach < margin, "cell"]]
    tests = f"within {number(margin)} (two one-sided tests at 5%, each cell by itself)"
    return f"Equivalent to dense {tests}: {joined(within) if within else 'no cell'}."


def _power(deviation: float, n: int) -> str:
    """Return the smallest gap that the seeds can show."""
    least = number(smallest_gap(deviation, n))
    return (
        f"Cells deviate over seeds by {number(deviation)} (root mean square): for one chosen"
        f" beforehand {n} seeds detect a gap of {least} with 80% power; the best of many needs"
        " more."
    )


def _left_out(frame: pd.DataFrame, cells: pd.DataFrame) -> str:
    """Return which cells have no result because a seed ended without one, and how it ended."""
    ended = cells["state"].map(lambda state: bool(RunState(state).lacks_result))
    lost = cells[(cells["role"] == "trial") & ended]
    texts = []
    for cell, state in zip(lost["cell"], lost["state"]):
        rows = frame[(frame["role"] == "trial") & (frame["cell"] == cell)]
        seeds = ", ".join(map(str, rows.loc[rows["state"] == state, "seed"]))
        which = f"seed {seeds} " if len(rows) > 1 else ""
        texts.append(f"{cell} ({which}{RunState(state).label})")
    return f"Without a result, but counted: {joined(texts)}." if texts else ""


def _rivals(name: str, tied: Sequence[str], cells: int, started: int, noun: str) -> str:
    """Return which cells the best is told apart from, by paired differences."""
    if cells < 2:
        return ""
    worse = f"every other {noun} is above it, even where intervals overlap"
    at = f"At 95% for all pairs of the {started} {noun}s together" if started > 2 else "At 95%"
    if not tied:
        return f"{at}, by paired differences, {worse}."
    alike = f"{routed(name)} cannot be distinguished from {joined(tied)}"
    rest = f"; {worse}" if len(tied) < cells - 1 else ""
    return f"{at}, by paired differences, {alike}{rest}."


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
    share = gap / loss
    than = "less" if share < 0 else "more"
    return f"{own} against dense's {text}, {number(100 * abs(share))}% {than}"


def _certainty(n: int, cells: int, *, of_seeds: bool) -> str:
    text = (
        f"One seed: the interval is over {n} held-out images of one pair of runs. It says how"
        " well these two networks were compared, not what another seed would give. This is an"
        " observation; test it with seeds=[0,1,2] or more."
    )
    if of_seeds:
        text = (
            f"The interval is of the mean over seeds, from {n}, each paired with its own baseline;"
            " one new seed can lie outside."
        )
    if cells < 3:
        return text
    return f"{text} The best of {cells} was chosen by the same numbers, so its gap is optimistic."


def _no_answer(frame: pd.DataFrame, *, complete: bool) -> Answer:
    """Return what replaces the finding and its certainty."""
    alone = frame[frame["reason"].isin(NO_RESULT.values())]
    if alone.empty:
        none = "There is no answer." if complete else "There is no answer yet."
        return Answer(none, "No trial has finished with a paired loss.")
    reason = str(alone["reason"].iloc[0]).replace("its baseline", "the baseline")
    why = f"{counted(len(alone), 'trial')} completed, but {reason}."
    return Answer("There is nothing to compare with.", why)
