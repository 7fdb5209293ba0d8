"""A search as Optuna's own pictures show it, from the cells of a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState
from optuna.visualization import (
    plot_optimization_history,
    plot_parallel_coordinate,
    plot_param_importances,
    plot_slice,
)

from tread_lab.dashboards import charts
from tread_lab.dashboards.charts import Chart
from tread_lab.records.metric_names import GAP_HELDOUT, lower_is_better, metric_label
from tread_lab.records.run_state import RunState
from tread_lab.results import HIGH, LOW, cells_frame
from tread_lab.results.texts import UNDECIDED, outcomes
from tread_lab.sweep.suggest import quiet

FEWEST = 4  # measured cells, below which importances say nothing
NOISE = " Here no cell can be distinguished from dense, so the shares may be noise."
SHARES = (
    "Share of the variance that each axis explains (fANOVA). Unstable for few cells: another seed"
    " of the search may order the axes differently."
)
PICTURES: tuple[tuple[str, Callable[..., Any], int, str], ...] = (  # fewest cells, caption
    ("History", plot_optimization_history, 1, "Every measured cell in the order of suggestion."),
    ("Parallel coordinates", plot_parallel_coordinate, 2, "Drag along an axis to select a range."),
    ("Importance", plot_param_importances, FEWEST, SHARES),
    ("Slice", plot_slice, 2, "Every measured cell against each axis."),
)


def study_of(frame: pd.DataFrame, metric: str) -> optuna.Study:
    """Return the study of a search: a trial for each cell, its value the mean over seeds.

    Args:
        frame: rows of `trials_frame`.
    """
    cells = cells_frame(frame)
    cells = cells[cells["role"] == "trial"]
    axes = [axis for axis in frame.attrs["axes"] if cells[axis].nunique() > 1]
    box = {axis: _distribution(cells[axis]) for axis in axes}
    read = {axis: float if isinstance(box[axis], FloatDistribution) else str for axis in axes}
    study = optuna.create_study(direction="minimize" if lower_is_better(metric) else "maximize")
    for cell in cells.to_dict("records"):
        done = cell["state"] == RunState.COMPLETED and pd.notna(cell[metric])
        lost = TrialState.FAIL if RunState(cell["state"]).ended else TrialState.RUNNING
        state, value = (TrialState.COMPLETE, cell[metric]) if done else (lost, None)
        point: Any = {axis: read[axis](cell[axis]) for axis in axes}
        trial = optuna.create_trial(state=state, value=value, params=point, distributions=box)
        study.add_trial(trial)
    return study


def search_charts(frame: pd.DataFrame, metric: str) -> Iterator[Chart]:
    """Yield Optuna's history, parallel coordinates, importances and slices."""
    with quiet():
        study = study_of(frame, metric)
        measured = len(study.get_trials(deepcopy=False, states=[TrialState.COMPLETE]))
        axes = {name for trial in study.get_trials(deepcopy=False) for name in trial.params}
        for title, draw, fewest, caption in PICTURES:
            if measured < fewest or not axes:
                continue
            named = {} if draw is plot_param_importances else {"target_name": metric_label(metric)}
            figure = draw(study, **named)
            figure.update_layout(template="none", title=None, height=320, margin=charts.MARGIN)
            figure.update_coloraxes(colorscale="Viridis")
            figure.update_traces(line={"shape": "hv"}, selector={"name": "Best Value"})
            note = NOISE if draw is plot_param_importances and _alike(frame) else ""
            yield Chart(title, figure, caption + note)


def _alike(frame: pd.DataFrame) -> bool:
    """Return whether no cell can be distinguished from dense by its own interval."""
    cells = cells_frame(frame)
    low, high = (cells.get(GAP_HELDOUT + end, pd.Series(dtype=float)) for end in (LOW, HIGH))
    return {*outcomes(low, high, 1)} <= {UNDECIDED}


def _distribution(values: pd.Series[Any]) -> BaseDistribution:
    known = values.dropna()
    if pd.api.types.is_numeric_dtype(known) and len(known) == len(values):
        low, high = float(known.min()), float(known.max())
        return FloatDistribution(low, high, log=low > 0 and high / low >= 30)
    return CategoricalDistribution([*dict.fromkeys(map(str, values))])
