"""What people ask of a run or a sweep is kept, line by line, and a request to stop is heard."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from tread_lab.records import remarks
from tread_lab.records.remarks import REMARKS, Remarks, ended_on_request


def test_damaged_lines_are_passed_over(tmp_path: Path) -> None:
    said = Remarks(tmp_path / REMARKS)
    said.add("stop", "diverges")
    with said.path.open("a") as file:
        file.write('{"event": "stop", "text": "torn')
    said.add("stop", "enough")
    assert [remark.text for remark in said.read()] == ["diverges", "enough"]
    said.path.write_text(said.path.read_text().replace("diverges", "diverged"))
    assert [remark.text for remark in said.read()] == ["enough"]


def test_a_request_is_a_signal_to_the_process_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remarks, "_POLL", 0.01)
    said, lines, signalled = Remarks(tmp_path / REMARKS), list[str](), threading.Event()
    said.add("stop", "an earlier one")
    former = signal.signal(signal.SIGTERM, lambda *_: signalled.set())
    try:
        with ended_on_request(said, lines.append):
            said.add("note", "of an earlier version")
            assert not signalled.wait(0.1)
            said.add("stop", "enough")
            assert signalled.wait(60)
    finally:
        signal.signal(signal.SIGTERM, former)
    assert len(lines) == 1 and lines[0].endswith(": enough")
