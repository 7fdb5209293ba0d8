"""`status`: the sweeps of a lab, the runs of a sweep, one run; it reads and imports little."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import small, tiny_spec, write_sweep
from tread_lab.cli import show_status as status
from tread_lab.cli.show_status import (
    show_lab,
    show_run,
    show_sweep,
    show_unfinished,
    watch_sweep,
)
from tread_lab.config import HeldoutSpec, decode
from tread_lab.config.load import load_experiment
from tread_lab.config.sweep import SweepSpec
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.sweep.plan import Plan, make_plan, store_plan


def plan(**sweep: Any) -> Plan:
    return make_plan(
        "s", decode(SweepSpec, {"experiment": "tiny", **sweep}), load_experiment("tiny")
    )


def placements(**more: Any) -> Plan:
    return plan(axes={"route": {"start": "0..3", "end": "4..9"}, **more}, seeds=[0, 1])


def test_status_needs_neither_torch_nor_pandas(tmp_path: Path) -> None:
    store_plan(Lab(tmp_path).sweep("s"), placements())
    heavy = "{'torch', 'pandas', 'mlflow', 'ray'} & set(sys.modules)"
    code = (
        "import sys; from tread_lab.cli.main import main;"
        f"code = main(['status', 's', '--root', {str(tmp_path)!r}]); assert not {heavy}, {heavy};"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "50 pending" in done.stdout and "... and 10 more" in done.stdout


def test_watch_ends_with_driver_and_runs(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records are read every two seconds; a change is a line."""
    write_sweep(lab.root, small(name="s", routes=[(0, 4)], states={(0, 4): "pending"}))
    folder, pauses, driven = lab.run_of(tiny_spec((0, 4))), list[float](), iter([True, False])
    monkeypatch.setattr(SweepFolder, "driven", property(lambda folder: next(driven)))

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            folder.finish(RunState.FAILED, step=10)

    monkeypatch.setattr("tread_lab.cli.show_status.time.sleep", sleep)
    watch_sweep(lab, "s")
    assert pauses == [2.0, 2.0, 2.0, 0.0] and len(capsys.readouterr().out.splitlines()) == 2


def test_sweeps_show_their_states(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_lab(Lab(tmp_path), as_json=False)
    assert "no sweep in" in capsys.readouterr().err
    lab = write_sweep(tmp_path, small(name="a", routes=[(0, 4)], states={None: "diverged"}))
    show_lab(lab, as_json=False)
    assert "1 diverged, 1 completed" in capsys.readouterr().out
    show_sweep(lab, "a", as_json=False)
    assert "baseline dense seed 0 diverged: its trials have nothing" in capsys.readouterr().out
    show_sweep(lab, "a", as_json=True)
    states = {row["label"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert states == {"dense seed 0": "diverged", "0->4 s=0.5 seed 0": "completed"}


def test_urgent_runs_come_first_where_room_is_short(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sweep(lab.root, small(name="s", states={(2, 8): "failed", (5, 8): "pending"}))
    monkeypatch.setattr(status, "ROWS", 1)
    show_sweep(lab, "s", as_json=False)
    shown = capsys.readouterr().out
    assert "2->8 s=0.5 seed 0" in shown and "... and 3 more" in shown


def test_unfinished_runs_are_named_with_the_remedy(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate = [{"heldout_loss": {"images": 8, "levels": 2}}]
    found = plan(axes={"route": ["2->8", "0->4"]}, evaluate=evaluate)
    store_plan(lab.sweep("s"), found)
    assert show_unfinished(lab, "s") is False
    first, second, _ = (lab.run_of(task.spec) for task in found.tasks)
    first.finish(RunState.FAILED, kind="exception")
    second.create(found.tasks[1].spec)
    second.finish(RunState.COMPLETED, step=found.tasks[1].spec.train.steps, reason="no weights")
    assert show_unfinished(lab, "s") is True
    said = capsys.readouterr().err
    assert "1 run failed (1 exception); --retry-failed runs them again" in said
    assert "measurements missing: 1 run (no weights); `tread-lab evaluate s` adds them" in said


def test_run_shows_attempts_and_metrics(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tiny_spec((2, 8))
    folder = lab.run_of(spec)
    folder.create(spec)
    for code in "ab":
        attempt = folder.open_attempt(pid=7, host="n1", fingerprint={"code": code})
        folder.close_attempt(attempt, "interrupted", reason="OOM\nmore")
    folder.finish(RunState.COMPLETED, step=400, metrics={"cost/x": 0.123456789})
    for step, loss in ((100, 0.5), (None, 0.25)):
        measured = HeldoutSpec(images=8, step=step)
        folder.evaluation(measured).write(measured, {"heldout/loss": loss})
    show_run(folder)
    text = " ".join(capsys.readouterr().out.split())
    for said in (
        f"run {folder.name} (2->8 s=0.5 seed 0) state completed",
        "attempt 2 interrupted, process 7 on n1: OOM",
        "mixed not one comparison: code differs: a in 1 run, b in 1 run",
        "heldout/loss images=8 0.25",
        "heldout/loss images=8 at 100 0.5",
    ):
        assert said in text
    show_run(folder, as_json=True)
    tree = json.loads(capsys.readouterr().out)
    name = "heldout/loss images=8"
    by_loss = sorted(tree["metrics"], key=lambda row: row[name])
    assert by_loss == [{name: 0.25}, {name: 0.5, "step": 100}]
    assert tree["result"]["metrics"] == {"cost/x": 0.123456789} and tree["run"] == folder.name
