"""The logged values of a sweep: each run once, whatever trials share it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.synthetic import tiny_spec
from tread_lab.frames.history import history_frame
from tread_lab.records.durable import write_json
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError, decode, encode
from tread_lab.specs.expansion import expand
from tread_lab.specs.sweep import Experiment, SweepSpec


def test_a_run_that_two_trials_share_is_read_once(tmp_path: Path) -> None:
    tree = {"experiment": "tiny", "axes": {"route": ["2->8"], "rate": [0, 0.5]}}
    base = Experiment(name="tiny", run=encode(tiny_spec((2, 8))))
    trials = expand(decode(SweepSpec, tree), base).trials
    dense, rate_zero, routed = (trial.run for trial in trials)
    assert dense == rate_zero != routed
    lab = Lab(tmp_path)
    plan = {"format": 1, "name": "s", "evaluate": [], "trials": encode(trials)}
    write_json(lab.sweep("s").plan_path, plan)
    for run, loss in ((dense, 0.5), (routed, 0.25)):
        with lab.run(run).log() as log:
            log(5, **{"train/loss": loss, "train/lr": 1e-4})
    frame = history_frame(lab, "s", ["train/loss"])
    assert list(frame.columns) == ["run", "step", "key", "value"]
    assert frame.to_numpy().tolist() == [
        [dense, 5, "train/loss", 0.5],
        [routed, 5, "train/loss", 0.25],
    ]
    assert len(history_frame(lab, "s")) == len(history_frame(lab, lab.sweep("s"))) == 4
    assert len(history_frame(lab, "s", [])) == 0
    with pytest.raises(UserError, match=r"no key 'train/los' .*did you mean 'train/loss'\?"):
        history_frame(lab, "s", ["train/los"])


def test_runs_stand_in_the_order_of_the_plan(tmp_path: Path) -> None:
    routes = [f"{start}->8" for start in (7, 2, 5, 0, 6, 3, 1, 4)]
    tree = {"experiment": "tiny", "axes": {"route": routes}}
    base = Experiment(name="tiny", run=encode(tiny_spec((2, 8))))
    trials = expand(decode(SweepSpec, tree), base).trials
    lab = Lab(tmp_path)
    plan = {"format": 1, "name": "s", "evaluate": [], "trials": encode(trials)}
    write_json(lab.sweep("s").plan_path, plan)
    for trial in trials:
        with lab.run(trial.run).log() as log:
            log(5, **{"train/loss": 0.5})
    frame = history_frame(lab, "s")
    assert frame["run"].tolist() == [trial.run for trial in trials]
    assert len(set(frame["run"])) == 9
