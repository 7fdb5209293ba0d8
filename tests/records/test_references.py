"""A name of a reference means one file in a lab, the first that was measured against."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tread_lab.records.references import check_same_reference
from tread_lab.specs import UserError


def test_another_file_under_a_name_is_refused_wherever_it_lies(tmp_path: Path) -> None:
    folder = tmp_path / "references"
    check_same_reference(folder, "coco", "a" * 64, Path("/x/coco.npz"))
    record = json.loads((folder / "coco.json").read_text())
    assert (record["sha256"], record["file"]) == ("a" * 64, "/x/coco.npz")
    check_same_reference(folder, "coco", "a" * 64, Path("/y/coco.npz"))
    check_same_reference(folder, "other", "b" * 64, Path("/y/other.npz"))
    assert json.loads((folder / "coco.json").read_text())["file"] == "/x/coco.npz"
    with pytest.raises(UserError) as refusal:
        check_same_reference(folder, "coco", "b" * 64, Path("/y/coco.npz"))
    assert str(refusal.value).startswith(
        "reference coco: /y/coco.npz (SHA-256 bbbbbbbbbbbb...) is another file than /x/coco.npz"
        " (aaaaaaaaaaaa...), which evaluations of this lab compare with under this name;"
    )
