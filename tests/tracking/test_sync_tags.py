"""Tags of a sync read back as they were written; a person's text is never taken for its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tread_lab.tracking.sync_tags import NAME, NOTE, Authored, Sent, files_mark


def test_what_was_sent_is_read_back_and_damage_is_nothing_sent() -> None:
    sent = Sent("abc", 7, 1000, "def")
    assert str(sent) == "stamp=abc log=7 born=1000 files=def" and Sent.parse(str(sent)) == sent
    for damaged in ("", "stamp=abc log=7", "stamp=abc log=x born=0 files=y"):
        assert Sent.parse(damaged) == Sent("", -1, 0, "")


def test_a_text_is_ours_if_we_would_write_it_or_wrote_it_last() -> None:
    authored = Authored.parse(str(Authored.of({NOTE: "first", NAME: "run"})))
    assert authored.known and len(authored.digests[NOTE]) == 16
    assert authored.is_ours(NOTE, "first", "second")
    assert authored.is_ours(NOTE, "second", "second")
    assert not authored.is_ours(NOTE, "a person's", "second")
    assert not authored.is_ours(NAME, "first", None) and not authored.is_ours("problem", "x", "y")


@pytest.mark.parametrize(
    ("place", "text", "ours"),
    [(NOTE, "**bold", True), (NOTE, "plain", False), (NAME, "x", False), ("problem", "x", True)],
)
def test_versions_without_digests_are_known_by_their_notes(
    place: str, text: str, ours: bool
) -> None:
    assert Authored.parse(None).is_ours(place, text, "other") == ours
    assert not Authored.parse("").is_ours(place, text, "other")


def test_files_are_marked_by_size_and_time_and_made_ones_by_content(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("1")
    first = files_mark({"a": path, "b": "text"})
    assert files_mark({"b": "text", "a": path}) == first and len(first) == 16
    assert files_mark({"a": path, "b": "texts"}) != first
    assert files_mark({"c": path, "b": "text"}) != first
    path.write_text("22")
    assert files_mark({"a": path, "b": "text"}) != first
