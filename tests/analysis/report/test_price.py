"""What the best cell costs beside dense is a sentence, and what asks for equal costs is another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.synthetic import small, write_sweep
from tread_lab.analysis.report import price as module
from tread_lab.analysis.report.answer import answer
from tread_lab.frames import trials_frame


def test_what_asks_for_equal_flops_is_named_until_the_sweep_asks_it(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(images=4, levels=2))
    frame, plan = trials_frame(lab, "placement"), lab.sweep("placement").plan()
    assert module.ASKS in answer(lab, frame, plan).cost
    asking = replace(plan, sources={"sweep": {"match": "train_flops"}})
    assert module.ASKS not in answer(lab, frame, asking).cost
    lengths = (replace(t, cell={**t.cell, "train.steps": t.steps}) for t in plan.trials)
    assert module.ASKS not in answer(lab, frame, replace(plan, trials=tuple(lengths))).cost


def test_flops_and_time_stand_beside_those_of_dense_with_their_mark(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    frame, plan = trials_frame(lab, "placement"), lab.sweep("placement").plan()
    fair = "Training 2→8 s=0.5 takes 8.5 TFLOP, 0.71 times dense's 12 TFLOP, and 46 s against"
    assert answer(lab, frame, plan).cost.startswith(f"{fair} dense's 60 s. ")
    assert answer(lab, frame, plan).cost.endswith(
        "The 4 completed runs took 40 TFLOP and 3 min of training, added up over runs that may"
        " overlap."
    )
    frame.loc[frame["role"] == "baseline", "cost/train_seconds"] = 200.0
    assert module.DISTURBED in answer(lab, frame, plan).cost
    alone = frame.drop(columns="cost/train_seconds")
    assert "0.71 times dense's 12 TFLOP. " in answer(lab, alone, plan).cost
    assert answer(lab, frame.drop(columns="cost/train_flops"), plan).cost == ""
