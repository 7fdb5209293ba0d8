"""The report command prints where it has written the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tread_lab.commands import report
from tread_lab.specs import UserError


@pytest.mark.parametrize("output", [None, Path("there.html")])
def test_the_report_is_written_where_it_is_told_and_its_path_printed(
    output: Path | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    calls: list[Any] = []

    def write_report(lab: Any, *what: Any) -> Path:
        calls.append((lab.root, *what))
        return Path("written.html")

    monkeypatch.setattr(report, "write_report", write_report)
    assert report.run(root=str(tmp_path), name="s", output=output) == 0
    assert calls == [(tmp_path, "s", output)]
    assert capsys.readouterr() == ("written.html\n", "")
    with pytest.raises(UserError, match="does not exist"):
        report.run(root=str(tmp_path / "absent"), name="s", output=output)
