"""A cell brings its seeds together: their means, their intervals, and the state of the worst."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tests.four_sweeps import made_frame
from tread_lab.records.run_state import RunState
from tread_lab.results import NO_RESULT, cells_frame, of_baseline, with_delta
from tread_lab.results.cells import disturbed


def rows(**columns: list[Any]) -> pd.DataFrame:
    """Trials of one cell each of which is completed, unless `columns` say otherwise."""
    n = len(next(iter(columns.values())))
    fixed: dict[str, Any] = {
        "run": [f"r{k}" for k in range(n)],
        "role": "trial",
        "cell": "2->8",
        "seed": range(n),
    }
    fixed |= {"baseline": None, "state": "completed", "reason": "", "mixed": False}
    return pd.DataFrame({**fixed, **columns})


ALONE = NO_RESULT[RunState.DIVERGED]


@pytest.mark.parametrize(
    ("states", "reasons", "state", "reason"),
    [
        ("completed pending", ["first", "second"], "pending", "second"),
        ("interrupted pending", ["first", "second"], "interrupted", "first"),
        ("running interrupted", ["first", "second"], "running", "first"),
        ("running stopped", ["first", "second"], "stopped", "second"),
        ("diverged stopped", ["first", "second"], "diverged", "first"),
        ("failed diverged", ["first", "second"], "failed", "first"),
        ("diverged failed", ["first", "second"], "failed", "second"),
        ("completed completed", ["first", "second"], "completed", "first"),
        ("completed completed", [ALONE, ""], "completed", ""),  # its other seeds are compared
        ("completed failed", [ALONE, "own"], "failed", "own"),
    ],
)
def test_cell_is_as_its_worst_seed(
    states: str, reasons: list[str], state: str, reason: str
) -> None:
    trials = rows(state=["completed", *states.split()], reason=["", *reasons])
    (cell,) = cells_frame(trials).to_dict("records")
    assert (cell["state"], cell["reason"]) == (state, reason)
    assert cell["completed"] == 1 + states.count("completed")


def test_difference_is_to_own_baseline() -> None:
    trials = rows(run=["a", "b", "c", "d"], baseline=[None, "a", None, "c"], x=[1.0, 4.0, 2.0, 8.0])
    assert of_baseline(trials, "x").fillna(-1).tolist() == [-1, 1.0, -1, 2.0]
    delta = with_delta(trials, "x")["delta/x"]
    assert delta.fillna(-1).tolist() == [-1, 3.0, -1, 6.0]
    twice = pd.concat([trials, trials])  # trials that share a run
    assert of_baseline(twice, "x").fillna(-1).tolist() == [-1, 1.0, -1, 2.0] * 2


def test_implausible_speed_up_is_disturbed() -> None:
    """Predicted 1.44, 1.52, 1.23 and 1.27; the second and the third are no facts."""
    flops = [144.0, 100.0, 144 / 1.52, 144 / 1.23, 144 / 1.27]
    spent = {"cost/train_flops": flops}
    seconds = "cost/train_seconds"
    spent[seconds] = [140.0, 100.0, 140 / 0.72, 140 / 5.00, 140 / 1.20]
    frame = made_frame("dense", "a", "b", "c", "d", **spent)
    assert list(disturbed(frame)) == [False, False, True, True, False]
    slow = frame.assign(**{seconds: [200.0, 70.0, 64.0, 78.0, 76.0]})  # dense beside other work
    assert list(disturbed(slow)) == [True] * 5
    slower = frame.assign(**{seconds: frame["cost/train_flops"] ** 0.5})
    assert not disturbed(slower).any()
    other = frame.assign(precision=["fp32", *["bf16"] * 4])  # twice as fast for another reason
    assert not disturbed(other).any()
    assert disturbed(frame.assign(precision="bf16")).any()
    assert not disturbed(frame.drop(columns=seconds)).any()
