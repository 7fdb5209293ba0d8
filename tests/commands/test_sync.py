"""The sync command brings all sweeps up to date, or those that are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.synthetic import small, write_sweep
from tread_lab.commands import sync
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError
from tread_lab.tracking.tracker import SyncReport


@pytest.mark.parametrize(("names", "synced"), [([], ["a", "b", "c"]), (["c", "a"], ["c", "a"])])
def test_sweeps_are_synced_in_their_order(
    names: list[str],
    synced: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in "abc":
        write_sweep(tmp_path, small(name=name))

    def sync_now(lab: Lab, name: str) -> SyncReport:
        assert lab.root == tmp_path
        return SyncReport(name, runs=3)

    monkeypatch.setattr(sync, "sync_now", sync_now)
    assert sync.run(root=str(tmp_path), names=names) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [str(SyncReport(name, runs=3)) for name in synced]
    with pytest.raises(UserError, match="no sweep 'd'"):
        sync.run(root=str(tmp_path), names=["a", "d"])


def test_a_lab_without_sweeps_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^no sweep in .*; `tread-lab sweep` makes one$"):
        sync.run(root=str(tmp_path), names=[])
