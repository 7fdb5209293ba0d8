"""A parent that is named by its signature becomes its whole spec; all else stays as written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tread_lab.records.lab import Lab
from tread_lab.records.parents import with_parents
from tread_lab.specs import RunSpec, UserError, encode, signature


def test_a_parent_by_name_keeps_which_weights_are_taken(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    spec = tiny()
    lab.run_of(spec).create(spec)
    start = {"run": signature(spec)[:6], "weights": "model"}
    written = with_parents({"variants": [{"init_from": start}]}, lab)
    assert written == {"variants": [{"init_from": {"run": encode(spec), "weights": "model"}}]}


def test_a_parent_may_be_its_name_alone_and_a_file_gets_its_digest(
    lab: Lab, tiny: Callable[..., RunSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tiny()
    lab.run_of(spec).create(spec)
    assert with_parents({"init_from": signature(spec)}, lab) == {"init_from": {"run": encode(spec)}}
    whole = {"init_from": {"run": encode(spec)}}
    assert with_parents(whole, lab) == whole and with_parents((1, "a"), lab) == (1, "a")
    (tmp_path / "w.pt").write_bytes(b"weights")
    start = {"file": str(tmp_path / "x" / ".." / "w.pt"), "weights": "model"}
    assert with_parents({"init_from": start}, lab) == {
        "init_from": {
            "file": str(tmp_path / "w.pt"),
            "weights": "model",
            "digest": hashlib.sha256(b"weights").hexdigest()[:16],
        }
    }
    monkeypatch.setenv("HOME", str(tmp_path))
    at_home = with_parents({"init_from": {"file": "~/w.pt"}}, lab)
    assert at_home["init_from"]["file"] == str(tmp_path / "w.pt")
    with pytest.raises(UserError, match=r"init_from.file: cannot read .*absent: No such file"):
        with_parents({"init_from": {"file": str(tmp_path / "absent")}}, lab)
    with pytest.raises(UserError, match="no run 'ffff' in"):
        with_parents({"init_from": "ffff"}, lab)
