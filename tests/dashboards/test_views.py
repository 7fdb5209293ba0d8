"""Around the map: the best cell is the answer's, a search's pending runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.synthetic import small, write_sweep
from tread_lab.dashboards import views
from tread_lab.frames import trials_frame


def test_the_best_cell_is_the_one_of_the_answer(tmp_path: Path) -> None:
    frame = trials_frame(write_sweep(tmp_path, small()), "placement")
    assert views.best(frame) == 2  # 2->8
    assert views.best(frame.assign(state="pending")) is None


def test_the_runs_that_a_search_has_yet_to_suggest_are_pending(tmp_path: Path) -> None:
    swept = small(rates=(0.25, 0.5), seeds=(0, 1), states={(0, 4): "failed"})
    lab = write_sweep(tmp_path, swept)
    plan = dataclasses.replace(
        lab.sweep("placement").plan(),
        search={"sampler": "tpe", "objectives": ["gap/heldout"]},
        sources={"sweep": {"search": {"trials": 9}}},
        suggested=6,
    )
    frame = trials_frame(lab, "placement")
    states = frame.drop_duplicates("run")["state"]
    assert views.counts(states, views.to_suggest(plan)) == {
        "completed": 10,
        "failed": 4,
        "pending": 3 * 2,
    }
