"""The commands about a lab show what is named, and change only what they are told to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.synthetic import small, tiny_spec, write_sweep
from tread_lab.cli.main import main
from tread_lab.config import signature

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
def test_what_is_named_is_shown_on_stdout_alone(
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

    class Tracked:
        def sync(self, name: str) -> Counter[str]:
            return Counter({"created": 3} if name == "a" else {})

    monkeypatch.setattr("tread_lab.cli.mlflow_view.mlflow_tracker", lambda lab: Tracked())
    assert main(["sync", *names, "--root", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    said = {"a": "3 created"}
    assert lines == [f"{name}: {said.get(name, 'no run has begun')}" for name in synced]
