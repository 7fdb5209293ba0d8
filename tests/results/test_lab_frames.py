"""A lab is opened where it lies; its frames have what the records have."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tests.synthetic import small, write_sweep
from tread_lab.records.run_state import RunState
from tread_lab.results.lab_frames import (
    GAP_COLUMNS,
    gaps_frame,
    open_lab,
)


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
