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
from tread_lab.records.metric_names import lower_is_better, metric_label
from tread_lab.records.run_state import RunState
from tread_lab.results import cells_frame
from tread_lab.sweep.suggest import quiet

FEWEST = 4  # measured cells, below which importances say nothing
Draw = Callable[..., Any]
PICTURES: tuple[tuple[str, Draw, int, str], ...] = (  # title, drawing, fewest cells, caption
    ("History", plot_optimization_history, 1, "Every measured cell in the order of suggestion."),
    (
        "Parallel coordinates",
        plot_parallel_coordinate,
        2,
        "A line for each measured cell; drag along an axis to select a range.",
    ),
    (
        "Importance",
        plot_param_importances,
        FEWEST,
        "Share of the variance that each axis explains (fANOVA). Unstable for few cells: another"
        " seed of the search may order the axes differently.",
    ),
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
    for _, cell in cells.iterrows():
        done = cell["state"] == RunState.COMPLETED and pd.notna(cell[metric])
        running = not RunState(cell["state"]).ended
        state = TrialState.COMPLETE if done else TrialState.FAIL
        study.add_trial(
            optuna.create_trial(
                state=TrialState.RUNNING if running else state,
                value=float(cell[metric]) if done else None,
                params={axis: read[axis](cell[axis]) for axis in axes},
                distributions=box,
            )
        )
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
            yield Chart(title, figure, caption)


def _distribution(values: pd.Series[Any]) -> BaseDistribution:
    known = values.dropna()
    if pd.api.types.is_numeric_dtype(known) and len(known) == len(values):
        low, high = float(known.min()), float(known.max())
        return FloatDistribution(low, high, log=low > 0 and high / low >= 30)
    return CategoricalDistribution([*dict.fromkeys(map(str, values))])
