"""What the dashboard reads of a sweep whose plan grows, and what it says when it cannot read."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.faults.drivers import eventually
from tests.synthetic import FD, small, write_sweep
from tread_lab.dashboards import live
from tread_lab.dashboards.live import LiveSweep, Snapshot, progress
from tread_lab.dashboards.pages import Pages
from tread_lab.frames import plan_frame
from tread_lab.records.durable import write_json
from tread_lab.records.lab import Lab
from tread_lab.records.log import LogWriter
from tread_lab.records.metric_names import TRAIN_LOSS
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import Judgement, Suggestion
from tread_lab.specs import SamplesSpec
from tread_lab.specs.cell import Trial


@pytest.fixture
def searched(tmp_path: Path) -> Lab:
    """A search of three cells that has asked for nothing yet; its runs are all there."""
    lab = write_sweep(tmp_path, small())
    folder = lab.sweep("placement")
    plan = json.loads(folder.plan_path.read_text())
    cells = [trial["cell"] for trial in plan["trials"][1:]]
    search = {"sampler": "random", "space": {"cells": 3, "checksum": "0"}}
    tree = {**plan, "trials": plan["trials"][:1], "search": search, "space": cells}
    write_json(tmp_path / "all.json", plan["trials"])
    write_json(folder.plan_path, tree)
    return lab


def ask(lab: Lab, number: int) -> None:
    """The search asks for its cell `number`."""
    trial = json.loads((lab.root / "all.json").read_text())[1 + number]
    suggestion = Suggestion(number, trial["cell"], (Trial.read(trial),))
    lab.sweep("placement").add_suggestion(suggestion)


def settled(live: LiveSweep, rows: int) -> Snapshot:
    """The first snapshot with this many rows."""
    found: list[Snapshot] = []

    def shown() -> bool:
        found[:] = [live.snapshot()]
        return len(found[0].frame) == rows and found[0].version != 0

    eventually(shown, why=lambda: f"{len(found[0].frame)} rows")
    return found[0]


def test_a_running_cell_that_a_search_asks_for_is_listed_and_opens(searched: Lab) -> None:
    pages = Pages(searched)
    live = pages.live("placement")
    assert settled(live, 1).frame["role"].tolist() == ["baseline"]
    ask(searched, 1)
    run = searched.run(json.loads((searched.root / "all.json").read_text())[2]["run"])
    run.reopen()
    with run.lock():
        now = settled(live, 2)
        assert [trial.run for trial in now.plan.trials] == now.frame["run"].tolist()
        tree = pages.sweep("placement")
        assert [(row["number"], row["seed"]) for row in tree["running"]] == [(1, 0)]
        detail = pages.cell("placement", "1")
    assert (detail["cell"], detail["state"]) == ("2->8 s=0.5", "running")


def test_a_trained_run_that_a_process_works_at_is_being_measured(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    run = lab.run(lab.sweep("placement").plan().trials[1].run)
    pages = Pages(lab)
    live = pages.live("placement")
    with run.lock():
        states = settled(live, 4).frame["state"].tolist()
        tree = pages.sweep("placement")
    assert states == ["completed", "measuring", "completed", "completed"]
    assert [(row["number"], row["measuring"]) for row in tree["running"]] == [(1, True)]
    assert tree["cells"]["state"] == ["completed", "running", "completed", "completed"]
    eventually(lambda: set(live.snapshot().frame["state"]) == {"completed"})


def test_progress_is_the_last_entry_of_the_log(tmp_path: Path) -> None:
    run = Lab(tmp_path).run("0" * 16)
    assert progress(run, 40) == {"step": 0, "steps": 40, "loss": None}
    with LogWriter(run.log_path) as log:
        log(10, **{TRAIN_LOSS: 0.5})
        log(20, **{TRAIN_LOSS: 0.25})
    assert progress(run, 40) == {"step": 20, "steps": 40, "loss": 0.25}
    run.log_path.unlink()
    run.log_path.mkdir()  # stands for a log that may not be read
    assert progress(run, 40) == {"step": 0, "steps": 40, "loss": None}


def test_a_search_has_its_space_its_order_from_the_first_look(searched: Lab) -> None:
    plan = searched.sweep("placement").plan_path
    tree = json.loads(plan.read_text())
    write_json(plan, {**tree, "sweep": {"sweep": {"search": {"trials": 3}}}})
    pages = Pages(searched)
    settled(pages.live("placement"), 1)
    tree = pages.sweep("placement")
    assert tree["counts"] == {"completed": 1, "pending": 3}
    assert len(tree["cells"]["search"]["untried"]) == 3
    for number in (2, 0):
        ask(searched, number)
    settled(pages.live("placement"), 3)
    tree = pages.sweep("placement")
    assert sum(tree["counts"].values()) == 4
    assert [(d["key"], d["values"]) for d in tree["cells"]["dimensions"]] == [
        ("start", [0, 2, 5]),
        ("end", [4, 8]),
    ]
    assert tree["cells"]["search"] == {
        "trials": 3,
        "cells": 3,
        "order": [None, 1, 2],
        "untried": [[1, 1]],
        "names": ["2->8 s=0.5"],
    }


def test_an_extended_plan_is_shown_once_its_records_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = write_sweep(tmp_path, small(routes=((2, 8),), states={(2, 8): "pending"}))
    followed = LiveSweep(lab, "placement")
    first = settled(followed, 2)

    def meanwhile(*args: Any, **more: Any) -> pd.DataFrame:
        monkeypatch.setattr(live, "plan_frame", plan_frame)
        write_sweep(tmp_path, small())  # within a reading, which is of the plan before
        os.utime(lab.sweep("placement").plan_path, ns=(1, 1))
        return plan_frame(*args, **more)

    monkeypatch.setattr(live, "plan_frame", meanwhile)
    now = settled(followed, 4)
    assert now.frame["state"].tolist() == ["completed"] * 4 and now.version > first.version
    assert [trial.run for trial in now.plan.trials] == now.frame["run"].tolist()


def test_records_that_stay_unreadable_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = write_sweep(tmp_path, small())
    pages = Pages(lab)
    live = pages.live("placement")
    settled(live, 4)

    def unreadable(*_: object, **__: object) -> None:
        raise TypeError("of another kind")

    monkeypatch.setattr("tread_lab.dashboards.live.plan_frame", unreadable)
    live._read()
    assert not pages.sweep("placement")["problem"]  # once is a record that is being written
    eventually(lambda: bool(pages.sweep("placement")["problem"]))
    assert pages.sweep("placement")["problem"].startswith("TypeError: of")
    monkeypatch.undo()
    eventually(lambda: not pages.sweep("placement")["problem"])


def test_the_page_is_told_how_old_the_records_are(searched: Lab, monkeypatch: Any) -> None:
    live = LiveSweep(searched, "placement")
    settled(live, 1)
    monkeypatch.setattr(live, "_next", math.inf)  # no reading any more
    monkeypatch.setattr(live, "_read_at", time.monotonic() - 300)
    assert live.snapshot().age >= 300


def completes(lab: Lab, run: RunFolder) -> None:
    shutil.rmtree(run.path, ignore_errors=True)
    shutil.copytree(lab.root / "whole" / "runs" / run.name, run.path)


def is_stopped_early(lab: Lab, run: RunFolder) -> None:
    run.reopen()
    run.log_path.parent.mkdir(exist_ok=True)
    run.log_path.touch()
    lab.sweep("placement").add_judgement(Judgement(run.name, 7, 0.5))


def is_measured_by_another_sweep(lab: Lab, run: RunFolder) -> None:
    other = SamplesSpec(metrics=("fd",), count=500)
    run.evaluation(other).write(other, {f"{FD[:-3]}@500": len(run.name) + 0.5})


CHANGES: dict[str, Callable[[Lab, RunFolder], None]] = {
    "completes": completes,
    "fails": lambda lab, run: run.finish(RunState.FAILED, step=3, reason="a broken part"),
    "diverges": lambda lab, run: run.finish(RunState.DIVERGED, step=4, reason="not finite"),
    "is stopped early": is_stopped_early,
    "is continued": lambda lab, run: run.reopen(),
    "is measured by another sweep": is_measured_by_another_sweep,
}


def shown(pages: Pages) -> str:
    """All that the page is told of a sweep by what its records say, as of now."""
    live = pages.live("placement")
    live._next = math.inf  # readings are made here alone
    live._read()
    tree = {k: v for k, v in pages.sweep("placement").items() if k not in ("version", "age")}
    return json.dumps(tree, default=str)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep with two seeds of which most runs have not begun; `whole` is how it may end."""
    states = dict.fromkeys([(0, 4), (2, 8), ((5, 8), 1)], "pending")
    root = write_sweep(tmp_path_factory.mktemp("changing"), small(seeds=(0, 1), states=states)).root
    write_sweep(root / "whole", small(seeds=(0, 1)))
    return root


@pytest.mark.long("seeds")
@settings(
    max_examples=100 if "TREAD_LAB_LONG" in os.environ else 5,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    derandomize="TREAD_LAB_LONG" not in os.environ,
)
@given(changes=st.lists(st.tuples(st.sampled_from([*CHANGES]), st.integers(0, 7)), max_size=8))
def test_what_is_read_after_changes_is_what_is_read_from_nothing(
    made: Path, changes: list[tuple[str, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(shutil.copytree(made, Path(folder) / "lab"))
        pages, plan = Pages(lab), lab.sweep("placement").plan()
        live = pages.live("placement")
        shown(pages)
        for change, number in changes:
            CHANGES[change](lab, lab.run(plan.trials[number].run))
            live._read()
            anew = plan_frame(lab, plan)
            pd.testing.assert_frame_equal(live.snapshot().frame, anew)
            assert live.snapshot().frame.attrs == anew.attrs
        assert shown(pages) == shown(Pages(lab))
