"""The doctor command: a table for people, JSON for scripts, an exit code by the worst."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from tread_lab.cli import main
from tread_lab.commands import doctor as module
from tread_lab.prepare.required_files import REQUIRED, STANDS_IN
from tread_lab.records.lab import Lab
from tread_lab.sweep.plan.devices import Devices
from tread_lab.sweep.plan.planned_sweep import load_sweep
from tread_lab.sweep.plan.storage import store_plan


def test_a_machine_without_a_lab_is_examined_and_nothing_is_left(
    in_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in REQUIRED.values():
        monkeypatch.delenv(file.named_by, raising=False)
    assert main(["doctor", "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert (tree["wrong"], tree["warnings"], tree["exit_code"]) == ([], [], 0)
    assert tree["device"] == Devices.here().kinds[0].name and tree["free_bytes"] > 2**30
    assert tree["files"]["Inception-2015"]["sha256"].startswith("6726825d")
    assert tree["files"]["reference"]["sha256"] is None  # not known
    assert tree["files"]["latents"]["here"] is None and not tree["files"]["autoencoder"]["here"]
    assert list(in_folder.iterdir()) == []
    assert main(["doctor"]) == 0
    assert capsys.readouterr().err == "all well\n"


def test_a_plan_that_cannot_be_read_and_a_full_disk_are_two_lines(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "free_bytes", lambda lab: 10**6)
    folder = lab.sweep("broken").path
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text("{")
    assert main(["doctor", "--root", str(lab.root)]) == 2
    out = capsys.readouterr().out
    wrong, warned = (line for line in out.splitlines() if line.startswith(("wrong:", "warning:")))
    assert wrong.startswith("wrong: sweep broken: ") and warned.startswith("warning: 1 MB are free")
    assert "Inception-2015" in out and "6726825d0af5" in out and "not known" in out


def test_a_lab_that_cannot_be_written_or_locked_gives_the_code_of_its_cause(
    in_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    assert main(["doctor"]) == 3
    assert "wrong: " in (out := capsys.readouterr().out) and "no working locks" in out


def test_what_open_runs_lack_is_named_by_their_sweep(
    in_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TREAD_LAB_INCEPTION", raising=False)
    changes = ["experiment=tiny", "evaluate=[fid@100]"]
    store_plan(Lab.at(None).sweep("s"), load_sweep("selection_rate.yaml", *changes).plan)
    assert main(["doctor"]) == 2
    (line,) = (x for x in capsys.readouterr().out.splitlines() if x.startswith("wrong:"))
    assert line.startswith("wrong: sweep s: ") and "TREAD_LAB_INCEPTION" in line
    monkeypatch.setattr(module, "check_files", lambda tasks: ["the data are small"])
    monkeypatch.setattr(
        module, "absences", lambda: {**dict.fromkeys(REQUIRED), "latents": STANDS_IN}
    )
    assert main(["doctor"]) == 1
    lines = [x for x in capsys.readouterr().out.splitlines() if x.startswith("warning:")]
    assert [line.partition(";")[0] for line in lines] == [
        "warning: the data are small",
        "warning: latents: a stand-in of random numbers",
    ]


def test_a_file_that_is_no_such_thing_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third, *others = REQUIRED
    unset = {name: f"{REQUIRED[name].named_by} is not set" for name in others}
    module.show_files({first: "", second: STANDS_IN, third: "it holds no weights", **unset})
    lines = capsys.readouterr().out.splitlines()
    assert lines[1 + len(REQUIRED) :][-1] == f"{third}: it holds no weights"
    assert [line.split()[1] for line in lines[1:4]] == ["yes", "stand-in", "no"]
