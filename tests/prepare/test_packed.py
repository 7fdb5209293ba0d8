"""A packed folder is the data set that was asked for, or another one, or none yet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tread_lab.data.manifest import write_manifest
from tread_lab.prepare.packed import _facts, _write_beside, check_whole, class_names
from tread_lab.specs import UserError


def test_a_whole_data_set_is_made_once_and_another_is_refused(tmp_path: Path) -> None:
    plan = {"source": "x", "size": (8, 8)}
    assert not check_whole(tmp_path, plan)
    write_manifest(tmp_path, {"made_with": {"source": "x", "size": [8, 8]}}, [])
    assert check_whole(tmp_path, plan)
    with pytest.raises(UserError, match=r"holds a data set with .*size"):
        check_whole(tmp_path, {**plan, "size": (4, 4)})


def test_what_lies_beside_the_arrays_is_written_where_there_is_any(tmp_path: Path) -> None:
    labels = np.array([3, 1, 3])
    assert _write_beside(tmp_path, labels, None, None, []) == ["labels.npy"]
    assert class_names(tmp_path) is None
    names = _write_beside(tmp_path, labels, ["a", "\u00e9"], None, ["x.png", "y.png"])
    assert names == ["labels.npy", "classes.json", "damaged.txt"]
    assert class_names(tmp_path) == ["a", "\u00e9"]
    assert (tmp_path / "damaged.txt").read_text() == "x.png\ny.png\n"
    assert np.load(tmp_path / "labels.npy").tolist() == [3, 1, 3]


@pytest.mark.parametrize(("name", "channels"), [("latents", 4), ("moments", 2)])
def test_facts_are_counts_and_what_the_means_are_like(
    tmp_path: Path, name: str, channels: int
) -> None:
    values = np.random.default_rng(0).normal(2.0, 3.0, (300, 4, 2, 3)).astype(np.float32)
    np.save(tmp_path / f"{name}.npy", values)
    facts = _facts(tmp_path, name, np.arange(300) % 7)
    assert (facts["samples"], facts["labels"], facts["latent"]) == (300, 7, [channels, 2, 3])
    own = values[:, :channels].astype(np.float64)
    assert facts["mean"] == pytest.approx(own.mean(axis=(0, 2, 3)))
    assert facts["deviation"] == pytest.approx(own.std(axis=(0, 2, 3)))
