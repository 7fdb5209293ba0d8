"""`status`: the sweeps of a lab, the runs of a sweep, one run; it reads and imports little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import small, tiny_spec, write_sweep
from tread_lab.cli.show_status import (
    watch_sweep,
)
from tread_lab.config import decode
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
