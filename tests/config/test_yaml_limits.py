"""YAML up to the limits is read, and one step beyond them is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tread_lab.config.yaml_limits import MOST_NODES, check_values, checked_text
from tread_lab.specs import UserError


def test_lists_may_be_forty_deep_in_a_list_and_none_in_itself(tmp_path: Path) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text("[" * 41 + "]" * 41)
    assert len(checked_text(path)) == 82
    for text in ("[" * 42 + "]" * 42, "a: &x [*x]\n"):
        path.write_text(text)
        with pytest.raises(UserError, match="nested more than 40 deep, or in itself"):
            checked_text(path)


def test_a_negative_number_may_be_as_large_as_a_positive_one() -> None:
    check_values({"a": [2**53, -(2**53)]}, "f")
    for value in (2**53 + 1, -(2**53) - 1):
        with pytest.raises(UserError, match=r"^f\.a\[0\]: a whole number of 54 bits is too large"):
            check_values({"a": [value]}, "f")


def test_a_file_has_at_most_two_million_bytes(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text("a: 1\n#" + " " * 1_999_994)
    assert len(checked_text(path)) == 2_000_000
    path.write_text("a: 1\n#" + " " * 1_999_995)
    with pytest.raises(UserError, match="2,000,001 bytes are too many for a file of settings"):
        checked_text(path)


def test_keys_values_and_what_aliases_repeat_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_NODES == 200_000
    path = tmp_path / "many.yaml"
    path.write_text("a: &x [1, 2]\nb: [*x, *x]\n")  # 1 + a 1 + 3 + b 1 + (1 + 3 + 3)
    monkeypatch.setattr("tread_lab.config.yaml_limits.MOST_NODES", 13)
    assert checked_text(path).startswith("a: &x")
    monkeypatch.setattr("tread_lab.config.yaml_limits.MOST_NODES", 12)
    with pytest.raises(UserError, match=r"many.yaml: 13 values with its aliases, over 12$"):
        checked_text(path)


def test_a_text_has_at_most_4000_characters() -> None:
    check_values({"a": "x" * 4000, "b": ["y", None, 1.5, True]}, "f")
    with pytest.raises(UserError, match=r"^f\.b\[1\]: a text of 4,001 characters is too long"):
        check_values({"b": ["y", "x" * 4001]}, "f")


def test_a_mistake_of_syntax_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("a: 1\nb: [1\nc: 2\n")
    with pytest.raises(UserError, match=r"wrong\.yaml line 3: not valid YAML: expected ',' or"):
        checked_text(path)
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(UserError, match=r"wrong\.yaml: not valid YAML: 'utf-8' codec"):
        checked_text(path)
    with pytest.raises(UserError, match=r"^cannot read .*absent\.yaml: No such file or directory"):
        checked_text(tmp_path / "absent.yaml")


def test_the_mark_of_some_editors_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "marked.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert checked_text(path) == "a: 1\n"
    path.write_text("")
    assert checked_text(path) == ""
