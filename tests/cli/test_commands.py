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
        (["status", "--watch"], "--watch: requires the name of one sweep"),
        (["status", "placement", "--watch", "--json"], "of one sweep, without --json"),
        (["status", "placment"], "lab, did you mean 'placement'?"),
        (["status", "--root", "absent"], "(no such folder). Try --root"),
        (["sync", "placement", "d"], "no sweep 'd'"),
        (["sync", "--root", "empty"], "/empty. Try `tread-lab sweep`"),
        (["rm", RUN, "--yes"], f"run {RUN}: must not be in use, got use by sweep placement. Try r"),
        (["rm", RUN[:1], "--yes"], f"--yes: removing a run requires its full name, {RUN}"),
        (["evaluate", "absent"], "no run 'absent' in "),
        (
            ["evaluate", "placement", "--reference", "coco"],
            "--reference: requires a metric that compares",
        ),
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
