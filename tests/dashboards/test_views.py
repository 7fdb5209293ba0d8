"""Around the map: the best cell is the answer's, a search's own view, the budget's words."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.synthetic import FD, small, write_sweep
from tread_lab.dashboards import views
from tread_lab.frames import trials_frame
from tread_lab.records.durable import write_json
from tread_lab.specs.decode import encode
from tread_lab.specs.sweep import BudgetSpec


def test_the_best_cell_is_the_one_of_the_answer(tmp_path: Path) -> None:
    frame = trials_frame(write_sweep(tmp_path, small()), "placement")
    assert views.best(frame) == 2  # 2->8
    assert views.best(frame.assign(state="pending")) is None


def test_a_search_shows_trials_in_order_the_best_so_far_and_what_decides(tmp_path: Path) -> None:
    swept = small(rates=(0.25, 0.5), seeds=(0, 1), states={(0, 4): "failed"})
    lab = write_sweep(tmp_path, swept)
    plan = dataclasses.replace(
        lab.sweep("placement").plan(),
        search={"sampler": "tpe", "objectives": ["gap/heldout"]},
        sources={"sweep": {"search": {"trials": 9}}},
        suggested=6,
    )
    frame = trials_frame(lab, "placement")
    assert views.counts(plan, frame) == {"completed": 10, "failed": 4, "pending": 3 * 2}
    tree = views.search(plan, frame)
    assert tree is not None and tree["trials"] == 9
    known = [value for value in tree["values"] if value is not None]
    assert [value is None for value in tree["values"]] == [True, True, False, False, False, False]
    assert tree["best"][2:] == list(np.minimum.accumulate(known))
    assert set(tree["importance"]) == {"start", "rate"}  # `end` never varied
    assert sum(tree["importance"].values()) == pytest.approx(1)
    faster = {"sampler": "tpe", "objectives": ["throughput/images_per_s"]}  # higher is better
    tree = views.search(dataclasses.replace(plan, search=faster), frame)
    known = [value for value in tree["values"] if value is not None]
    assert len({*known}) > 1 and tree["best"][2:] == list(np.maximum.accumulate(known))


def test_a_search_by_guided_samples_shows_its_trials(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    search = {"sampler": "tpe", "objectives": [FD]}
    plan = dataclasses.replace(lab.sweep("placement").plan(), search=search)
    frame, column = trials_frame(lab, "placement"), f"{FD} w=2"
    frame = frame.rename(columns={FD: column})
    frame.attrs["planned"] = [column]
    tree = views.search(plan, frame)
    assert tree["objective"] == column and len(tree["values"]) == 3 and None not in tree["values"]
    alone = frame[frame["role"] == "trial"].assign(baseline=None)  # of a search without baseline
    tree = views.search(plan, alone)
    assert tree["values"] == list(alone[column].round(6))
    assert tree["title"] == f"{column}, the value itself"


def test_a_budget_is_told_in_the_terminals_words(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    folder, frame = lab.sweep("placement"), trials_frame(lab, "placement")
    assert views.budget(folder, folder.plan(), frame) == ""
    limits = BudgetSpec(hours=2, trials=5)
    write_json(folder.budget_path, encode(limits))
    said = views.budget(folder, folder.plan(), frame)
    assert said == "2 h (0 h spent), 5 trials (3 started)"
    assert said == limits.text(flops=0, hours=0, trials=3)
    write_json(folder.budget_path, encode(BudgetSpec(flops=1e12)))
    said = views.budget(folder, folder.plan(), frame)
    assert said.endswith(" spent by completed trials and baselines)"), "unlike the terminal's"
