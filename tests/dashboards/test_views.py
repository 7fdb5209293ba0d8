"""Around the map: the best cell is the answer's, a search's pending runs, the budget's words."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.synthetic import small, write_sweep
from tread_lab.dashboards import views
from tread_lab.frames import trials_frame
from tread_lab.records.durable import write_json
from tread_lab.records.log import append_line
from tread_lab.specs.decode import encode
from tread_lab.specs.sweep import BudgetSpec


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


def test_a_budget_is_told_in_the_terminals_words(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    folder, frame = lab.sweep("placement"), trials_frame(lab, "placement")
    append_line(folder.spent_path, {"session": "a", "seconds": 1800})
    assert views.budget(folder, folder.plan(), frame) == ""
    write_json(folder.budget_path, encode(BudgetSpec(hours=2, trials=5)))
    said = views.budget(folder, folder.plan(), frame)
    assert said == "2 h (0.5 h spent), 5 trials (3 started)"
    write_json(folder.budget_path, encode(BudgetSpec(flops=1e12)))
    said = views.budget(folder, folder.plan(), frame)
    assert said.endswith(" spent by completed trials and baselines)"), "unlike the terminal's"
