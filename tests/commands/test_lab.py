"""The commands about a lab show what is named, and change only what they are told to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import small, tiny_spec, write_sweep
from tread_lab.cli import main
from tread_lab.commands import lab as commands
from tread_lab.specs import signature
from tread_lab.tracking.tracker import SyncReport

RUN = signature(tiny_spec((2, 8)))


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], ("show_lab", None)),
        (["--watch"], ("show_lab", None)),
        (["placement"], ("show_sweep", "placement")),
        (["placement", "--watch"], ("watch_sweep", "placement")),
        ([RUN[:6]], ("show_run", RUN)),
    ],
)
def test_what_is_named_is_shown(
    words: list[str], shown: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    write_sweep(tmp_path, small(similarity=True))
    for kind in ("show_lab", "show_sweep", "watch_sweep", "show_run"):

        def show(first: Any, *what: Any, kind: str = kind, **_: Any) -> int:
            named = first.name if kind == "show_run" else what[0] if what else None
            calls.append((kind, named))
            return 0

        monkeypatch.setattr(commands, kind, show)
    assert main(["status", *words, "--root", str(tmp_path)]) == 0
    assert calls == [shown]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["status", RUN, "--watch"], "no sweep"),
        (["status", "placment"], "has no sweep 'placment', did you mean 'placement'"),
        (["status", "--root", "absent"], "does not exist"),
        (["export", "placement", "out"], "placement is a sweep; `tread-lab status placement`"),
        (["sync", "placement", "d"], "no sweep 'd'"),
        (["sync", "--root", "empty"], "/empty; `tread-lab sweep` makes one"),
        (["figures", "other"], "no sweep 'other'"),
        (["figures", "placement", "--root", "absent"], "does not exist"),
        (["report", "placement", "--root", "absent"], "does not exist"),
    ],
)
def test_what_is_not_there_is_one_line(
    words: list[str], line: str, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sweep(in_folder / "lab", small())
    Path("empty").mkdir()
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and line in err and err.count("\n") == 1


@pytest.mark.parametrize(("names", "synced"), [([], "abc"), (["c", "a"], "ca")])
def test_sweeps_are_synced_in_their_order(
    names: list[str],
    synced: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in "abc":
        write_sweep(tmp_path, small(name=name))
    report = "tread_lab.commands.mlflow_view.sync_now"
    monkeypatch.setattr(report, lambda lab, name: SyncReport(name, runs=3))
    assert main(["sync", *names, "--root", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [str(SyncReport(name, runs=3)) for name in synced]
