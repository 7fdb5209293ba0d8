"""YAML up to the limits is read, and one step beyond them is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tread_lab.config.yaml_limits import checked_text
from tread_lab.specs import UserError


def test_lists_may_be_forty_deep_in_a_list(tmp_path: Path) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text("[" * 41 + "]" * 41)
    assert len(checked_text(path)) == 82
    path.write_text("[" * 42 + "]" * 42)
    with pytest.raises(UserError, match="nested more than 40 deep"):
        checked_text(path)
