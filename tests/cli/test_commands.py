"""The commands about a lab show what is named, and change only what they are told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.synthetic import small, tiny_spec, write_sweep
from tread_lab.cli.main import main
from tread_lab.config import signature

RUN = signature(tiny_spec((2, 8)))


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
