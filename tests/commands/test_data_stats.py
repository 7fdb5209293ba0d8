"""The data stats command writes statistics beside the data, where it is asked to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tread_lab.commands import data_stats
from tread_lab.data.statistics import OURS, Statistics
from tread_lab.prepare.measure import Measured
from tread_lab.specs.errors import Unavailable, UserError

MEASURED = Measured((1, 2, 2), (3,), np.array([0.5]), np.array([2.0]), 0.0, 2.0, -1.0, 1.0)


@pytest.mark.parametrize(("name", "is_file"), [("latents", False), ("latents.npz", True)])
@pytest.mark.parametrize("write", [True, False])
def test_statistics_lie_in_the_folder_of_the_data(
    write: bool,
    name: str,
    is_file: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, written, shown = tmp_path / name, list[Any](), list[Any]()
    path.touch() if is_file else path.mkdir()
    monkeypatch.setattr(data_stats, "open_store", lambda source, where: (source, where))
    monkeypatch.setattr(data_stats, "source_of", lambda where: "found")
    monkeypatch.setattr(data_stats, "measure", lambda store: shown.append(store) or MEASURED)
    monkeypatch.setattr(
        data_stats, "show_measured", lambda found, as_json: shown.append((found, as_json))
    )
    monkeypatch.setattr(data_stats, "write_statistics", lambda *what: written.append(what))
    for source in ("latents", None):
        assert data_stats.run(path=path, source=source, write=write, as_json=True) == 0
    assert shown == [("latents", path), (MEASURED, True), ("found", path), (MEASURED, True)]
    place = (tmp_path if is_file else path) / OURS
    assert [where for where, _ in written] == ([place] * 2 if write else [])
    for _, found in written:
        assert isinstance(found, Statistics)
        assert (found.mean_C.tolist(), found.deviation_C.tolist()) == ([0.5], [2.0])
    said = f"{place}: mean and deviation of each channel, for data.normalise=true\n"
    assert capsys.readouterr() == ("", said * 2 if write else "")


def test_a_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(data_stats, "open_store", lambda *_: None)
    monkeypatch.setattr(data_stats, "measure", lambda _: MEASURED)
    monkeypatch.setattr(data_stats, "write_statistics", full)
    with pytest.raises((UserError, Unavailable), match=str(tmp_path)):
        data_stats.run(path=tmp_path, source="latents", write=True, as_json=True)
