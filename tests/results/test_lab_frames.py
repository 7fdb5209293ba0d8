"""A lab is opened where it lies; its frames have what the records have."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.synthetic import small, tiny_spec, write_sweep
from tread_lab.config import decode, encode
from tread_lab.config.errors import UserError
from tread_lab.config.sweep import Experiment, SweepSpec
from tread_lab.records.durable import write_json
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.results.lab_frames import (
    GAP_COLUMNS,
    gaps_frame,
    history_frame,
    open_lab,
)
from tread_lab.sweep.expand import expand


def test_each_measured_trial_has_a_gap(tmp_path: Path) -> None:
    states = {(5, 8): RunState.FAILED}
    lab = write_sweep(tmp_path, small(name="s", seeds=(0, 1), states=states))
    sweep = open_lab(lab.root).sweep("s")
    gaps = sweep.gaps
    assert list(gaps.columns) == [*GAP_COLUMNS]
    heldout = gaps[gaps["gap"] == "gap/heldout"]
    assert heldout["mean"].round(4).tolist() == [0.0104, 0.0104, -0.0015, -0.0015]
    baselines = sweep.trials.query("role == 'baseline'").set_index("run")["seed"]
    assert heldout["baseline"].map(baselines).tolist() == heldout["seed"].tolist() == [0, 1, 0, 1]
    assert repr(sweep) == "s: 8 runs of DiT-12x32/2 (6 completed, 2 failed), 2 seeds"
    trials = sweep.trials
    vars(sweep)["trials"] = pd.concat([trials, trials[trials["role"] == "trial"]])
    assert repr(sweep).startswith("s: 8 runs of")  # one that two trials share counts once
    none_measured = gaps_frame(sweep.trials[sweep.trials["role"] == "baseline"])
    assert len(none_measured) == 0 and list(none_measured.columns) == [*GAP_COLUMNS]


def test_history_follows_the_plan(tmp_path: Path) -> None:
    routes = [f"{start}->8" for start in (7, 2, 5, 0, 6, 3, 1, 4)]
    tree = {"experiment": "tiny", "axes": {"route": routes, "rate": [0, 0.5]}}
    base = Experiment(name="tiny", run=encode(tiny_spec((2, 8))))
    trials = expand(decode(SweepSpec, tree), base).trials
    runs = list(dict.fromkeys(trial.run for trial in trials))  # dense is a trial of each route
    assert len(runs) == 9 < len(trials)
    lab = Lab(tmp_path)
    plan = {"format": 2, "name": "s", "evaluate": [], "trials": encode(trials)}
    write_json(lab.sweep("s").plan_path, plan)
    assert len(history_frame(lab, "s", ["train/loss"])) == 0  # nothing was logged yet
    for number, run in enumerate(runs):
        with lab.run(run).log() as log:
            log(5, **{"train/loss": float(number), "train/lr": 1e-4})
    frame = history_frame(lab, "s", ["train/loss"])
    assert list(frame.columns) == ["run", "step", "key", "value"]
    assert frame.to_numpy().tolist() == [
        [run, 5, "train/loss", float(number)] for number, run in enumerate(runs)
    ]
    assert len(history_frame(lab, "s")) == len(history_frame(lab, lab.sweep("s"))) == 18
    assert len(history_frame(lab, "s", [])) == 0
    with pytest.raises(UserError, match=r"no key 'train/los' .*did you mean 'train/loss'\?"):
        history_frame(lab, "s", ["train/los"])
