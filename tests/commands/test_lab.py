"""The commands about a lab show what is named, and change only what they are told to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import small, tiny_spec, write_sweep
from tread_lab.cli import main
from tread_lab.commands import lab as commands
from tread_lab.records.lab import Lab
from tread_lab.specs import signature
from tread_lab.sweep.gc import FEATURES, SAMPLES, Removable
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


@pytest.mark.parametrize(
    ("flags", "chosen", "kept"),
    [
        ([], "a", {SAMPLES: 1010, FEATURES: 100}),
        (["--samples"], "abd", {FEATURES: 100}),
        (["--features"], "ac", {SAMPLES: 1010}),
        (["--samples", "--features"], "abcd", {}),
    ],
)
@pytest.mark.parametrize("yes", [True, False])
def test_gc_removes_what_is_asked_for_and_offers_the_rest(
    yes: bool,
    flags: list[str],
    chosen: str,
    kept: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = {"a": ("scratch", 1), "b": (SAMPLES, 10), "c": (FEATURES, 100), "d": (SAMPLES, 1000)}
    files = [Removable(what, Path(name), size) for name, (what, size) in sizes.items()]
    cleared, shown = list[str](), list[Any]()

    def clear(lab: Lab, items: list[Removable]) -> int:
        assert lab.root == tmp_path
        cleared.extend(item.path.name for item in items)
        return 7

    monkeypatch.setattr("tread_lab.sweep.gc.find", lambda lab, **_: files)
    monkeypatch.setattr("tread_lab.sweep.gc.clear", clear)
    monkeypatch.setattr(
        "tread_lab.terminal.gc.show_removable",
        lambda items, freed, **how: shown.append((freed, how)),
    )
    assert main(["gc", *flags, *(["--yes"] if yes else []), "--root", str(tmp_path)]) == 0
    assert cleared == ([*chosen] if yes else [])
    assert shown == [(7 if yes else None, {"as_json": False, "kept": kept})]


def test_export_lists_what_it_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sweep(tmp_path, small(similarity=True))

    def written(folder: Any, out: Path, *, step: int | None) -> dict[str, int]:
        assert (folder.name, out, step) == (RUN, Path("there"), 4)
        return {"model.safetensors": 2000, "README.md": 5}

    monkeypatch.setattr("tread_lab.engine.export.export", written)
    assert main(["export", RUN[:6], "there", "--step", "4", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "there/model.safetensors: 2 kB\nthere/README.md: 5 B\n"


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
