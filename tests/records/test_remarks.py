"""What people say of a run or a sweep is kept, line by line, and a request to stop is heard."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from tread_lab.records import remarks
from tread_lab.records.remarks import REMARKS, Remarks, ended_on_request
from tread_lab.specs import UserError


def test_remarks_are_read_as_they_were_made_and_damaged_lines_are_passed_over(
    tmp_path: Path,
) -> None:
    said = Remarks(tmp_path / REMARKS)
    assert (said.notes, said.tags) == ([], [])
    said.add_note(" too short a schedule ")
    said.add_tags(["paper", "b2", "paper"])
    with said.path.open("a") as file:
        file.write('{"event": "note", "text": "torn')
    said.add_tags(["paper"], remove=True)
    said.add_note("second")
    assert said.notes == ["too short a schedule", "second"] and said.tags == ["b2"]
    said.path.write_text(said.path.read_text().replace("second", "secund"))
    assert said.notes == ["too short a schedule"]


@pytest.mark.parametrize(
    ("tags", "remove", "line"),
    [
        (["a b"], False, "tag 'a b': a word of letters, digits and . + : / - _"),
        (["good", ""], False, "tag '': a word"),
        (["papr"], True, "tag 'papr' is not there, did you mean 'paper'?"),
    ],
)
def test_a_tag_that_is_none_changes_nothing(
    tags: list[str], remove: bool, line: str, tmp_path: Path
) -> None:
    said = Remarks(tmp_path / REMARKS)
    said.add_tags(["paper"])
    with pytest.raises(UserError) as error:
        said.add_tags(tags, remove=remove)
    assert str(error.value).startswith(line) and said.tags == ["paper"]
    for text in ("  ", "x" * 4001):
        with pytest.raises(UserError, match="a note has 1 to 4,000 characters"):
            said.add_note(text)


def test_a_request_is_a_signal_to_the_process_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remarks, "_POLL", 0.01)
    said, lines, signalled = Remarks(tmp_path / REMARKS), list[str](), threading.Event()
    said.add("stop", "an earlier one")
    former = signal.signal(signal.SIGTERM, lambda *_: signalled.set())
    try:
        with ended_on_request(said, lines.append):
            said.add_note("nothing to stop for")
            assert not signalled.wait(0.1)
            said.add("stop", "enough")
            assert signalled.wait(60)
    finally:
        signal.signal(signal.SIGTERM, former)
    assert len(lines) == 1 and lines[0].endswith(": enough")
