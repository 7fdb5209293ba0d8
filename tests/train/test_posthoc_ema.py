"""Post-hoc EMA: any length from snapshots, measured without training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.train.runs import CPU, evaluate, lab_with_a_run, small_run, train_until
from tread_lab.config.errors import UserError
from tread_lab.config.evaluation import HeldoutSpec, check_ema, decode_evaluations
from tread_lab.records.run_folder import RunFolder
from tread_lab.train.posthoc_ema import PowerEma, exponent, reconstructed
from tread_lab.train.trainer import Trainer

RUN = small_run(train={"steps": 96, "batch": 4, "lr": 3e-3, "ema": {"decay": 0.9, "snapshots": 32}})
LENGTHS = (0.03, 0.05, 0.07, 0.10, 0.15)


def test_exponents_are_the_published_ones() -> None:
    assert [round(exponent(length), 2) for length in (0.05, 0.10)] == [16.97, 6.94]


def test_any_length_equals_the_kept_average(tmp_path: Path) -> None:
    """Within 1e-3 of the norm, at five lengths; at the two that are kept, to rounding."""
    folder = RunFolder(tmp_path)
    with Trainer(RUN, folder, CPU) as live:
        direct = {length: PowerEma(live.network, length) for length in LENGTHS}
        for step in range(RUN.train.steps):
            live.train_step(live.batches.at(step), lr=RUN.train.lr)
            for average in direct.values():
                average.update(step + 1)
    for length, average in direct.items():
        found = reconstructed(folder, RUN.train.steps, length)
        assert found.keys() == average.weights.keys()
        a, b = (torch.cat([x[n].flatten() for n in found]) for x in (found, average.weights))
        assert (a - b).norm() < (1e-6 if length in (0.05, 0.10) else 1e-3) * b.norm()


def test_resumed_run_keeps_equal_snapshots(tmp_path: Path) -> None:
    """Bit by bit: the digest is a part of each name."""
    run = replace(RUN, train=replace(RUN.train, steps=8))
    train_until(run, tmp_path / "whole")
    train_until(run, tmp_path / "parts", 3)
    train_until(run, tmp_path / "parts")
    whole, parts = (RunFolder(tmp_path / name).averages for name in ("whole", "parts"))
    assert len({*whole.iterdir()}) == 8
    assert {path.name for path in whole.iterdir()} == {path.name for path in parts.iterdir()}


def test_lengths_are_evaluations_that_train_nothing(tmp_path: Path) -> None:
    probe = {"images": 8, "levels": 2, "ema": [0.05, 0.1, None]}
    specs = decode_evaluations([{"heldout_loss": probe}, {"fd@1k": {"ema": 0.05}}])
    assert [spec.ema for spec in specs] == [0.05, 0.1, None, 0.05]
    run = small_run(train={"steps": 8, "batch": 4, "lr": 0.1, "ema": {"decay": 0, "snapshots": 4}})
    folder = lab_with_a_run(tmp_path, run).run_of(run)
    losses = [evaluate(folder, spec, CPU)["heldout/loss"] for spec in specs[:3]]
    assert len(set(losses)) == 3
    weak = {"fd@1k": {"ema": 0.05, "sampler": {"guidance": {"weight": 2, "weak": {"step": 5}}}}}
    asked = {3: HeldoutSpec(ema=0.05, step=3), 5: decode_evaluations([weak])[0]}
    for step, spec in asked.items():
        with pytest.raises(UserError, match=f"ema requires a snapshot at step {step}"):
            check_ema(run, spec)
