"""YAML up to the limits is read, and one step beyond them is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tread_lab.config.yaml_limits import check_values, checked_text
from tread_lab.specs import UserError


def test_lists_may_be_forty_deep_in_a_list(tmp_path: Path) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text("[" * 41 + "]" * 41)
    assert len(checked_text(path)) == 82
    path.write_text("[" * 42 + "]" * 42)
    with pytest.raises(UserError, match="nested more than 40 deep"):
        checked_text(path)


def test_a_negative_number_may_be_as_large_as_a_positive_one() -> None:
    check_values({"a": [2**53, -(2**53)]}, "f")
    for value in (2**53 + 1, -(2**53) - 1):
        with pytest.raises(UserError, match=r"^f\.a\[0\]: a whole number of 54 bits is too large"):
            check_values({"a": [value]}, "f")
