"""A sweep's records as data frames: one row per trial, per cell or per logged value."""

from tread_lab.frames.cells import (
    STATES,
    cells_frame,
    disturbed,
    disturbed_times,
    of_baseline,
    with_delta,
)
from tread_lab.frames.columns import (
    COUNT,
    HIGH,
    KEPT,
    LOW,
    UNIT,
    delta_column,
    is_metric,
    metric_columns,
    own_metrics,
    require_metric,
    with_metrics,
)
from tread_lab.frames.lab_frames import history_frame
from tread_lab.frames.ranking import (
    best_first,
    better_than_dense,
    ranked_cells,
    ranking_caption,
    ranking_key,
    tied_with_best,
    without_baseline,
)
from tread_lab.frames.reading import Memory
from tread_lab.frames.steps import (
    STEP,
    equal_steps_frame,
    is_measured_during_training,
    plan_steps_frame,
    steps_frame,
    training_frame,
)
from tread_lab.frames.texts import (
    intervals_over,
    metric_number,
    metric_numbers,
    over_text,
    result_texts,
)
from tread_lab.frames.trials import NO_RESULT, SweepReader, plan_frame, trials_frame

__all__ = [
    "COUNT",
    "HIGH",
    "KEPT",
    "LOW",
    "NO_RESULT",
    "STATES",
    "STEP",
    "SweepReader",
    "UNIT",
    "Memory",
    "best_first",
    "better_than_dense",
    "cells_frame",
    "delta_column",
    "disturbed",
    "disturbed_times",
    "equal_steps_frame",
    "history_frame",
    "intervals_over",
    "is_measured_during_training",
    "is_metric",
    "metric_columns",
    "metric_number",
    "metric_numbers",
    "of_baseline",
    "over_text",
    "own_metrics",
    "plan_frame",
    "ranked_cells",
    "ranking_caption",
    "ranking_key",
    "require_metric",
    "result_texts",
    "plan_steps_frame",
    "steps_frame",
    "training_frame",
    "tied_with_best",
    "trials_frame",
    "with_delta",
    "with_metrics",
    "without_baseline",
]
