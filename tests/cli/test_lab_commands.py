"""The commands about a lab show what is named, and change only what they are told to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.synthetic import small, tiny_spec, write_sweep
from tread_lab.cli.main import main
from tread_lab.config import signature

TRACKER = "tread_lab.tracking.mlflow_tracker.MlflowTracker"
RUN = signature(tiny_spec((2, 8)))


@pytest.mark.parametrize(
    ("words", "first", "lines"),
    [
        ([], "sweep runs states", 2),
        (["placement"], "placement: 4 completed", 6),
        (["placement", "--watch"], "placement: 4 completed", 1),
        ([RUN[:6]], f"run {RUN} (2->8 s=0.5 seed 0)", 12),
    ],
)
def test_status_prints_on_stdout_alone(
    words: list[str], first: str, lines: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sweep(tmp_path, small(similarity=True))
    assert main(["status", *words, "--root", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    shown = [" ".join(line.split()) for line in out.splitlines()]
    assert (shown[0], len(shown), err) == (first, lines, "")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["status", RUN, "--watch"], "no sweep"),
        (["status", "--watch"], "--watch: shows the table of one sweep"),
        (["status", "placement", "--watch", "--json"], "one sweep; name it, without --json"),
        (["status", "placment"], "lab, did you mean 'placement'?"),
        (["status", "--root", "absent"], "is no such folder"),
        (["sync", "placement", "d"], "no sweep 'd'"),
        (["sync", "--root", "empty"], "/empty; `tread-lab sweep` makes one"),
        (["rm", RUN, "--yes"], f"run {RUN} is needed by sweep placement; remove that first"),
        (["rm", RUN[:1], "--yes"], f"--yes: a run is removed by its whole name, {RUN}"),
        (["evaluate", "absent"], "no run 'absent' in "),
        (["evaluate", "placement", "--reference", "coco"], "name what to compare with this refer"),
        (["figures", "other"], "no sweep 'other'"),
    ],
)
def test_absent_names_are_one_line(
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

    class Tracked:
        def sync(self, name: str) -> Counter[str]:
            return Counter({"created": 3} if name == "a" else {})

    monkeypatch.setattr(TRACKER, lambda lab, uri: Tracked())
    assert main(["sync", *names, "--root", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    said = {"a": "3 created"}
    assert lines == [f"{name}: {said.get(name, 'no run has begun')}" for name in synced]


def test_figures_and_report_print_paths(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sweep(in_folder / "lab", small())
    figures = "tread_lab.analysis.figures.catalogue.write_figures"
    monkeypatch.setattr(figures, lambda lab, name: [Path(f"{name}.png"), Path("a.pdf")])
    assert main(["figures", "placement"]) == 0
    assert capsys.readouterr() == ("placement.png\na.pdf\n", "")
    monkeypatch.setattr("tread_lab.dashboards.contents.page_file", lambda lab, name: name)
    assert main(["report", "placement", "--output", "there.html"]) == 0
    assert capsys.readouterr().out == "there.html\n" and Path("there.html").read_text()


def test_ui_syncs_before_it_serves(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def served(lab: Any, **how: Any) -> None:
        calls.append((how["host"], how["port"]))

    monkeypatch.setattr("tread_lab.dashboards.server.serve", served)
    monkeypatch.setattr("tread_lab.tracking.store.ui", served)
    monkeypatch.setattr(TRACKER, lambda lab, uri: SimpleNamespace(sync=calls.append))
    assert main(["dashboard", "--host", "h", "--port", "7"]) == 0  # also of a lab that is not there
    for name in "ab":
        write_sweep(in_folder / "lab", small(name=name))
    assert main(["ui"]) == 0
    assert calls == [("h", 7), "a", "b", ("127.0.0.1", 5000)]
