"""Walks over stored data: classes, channels and scale; each fault is one line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.conftest import LATENTS
from tread_lab.data.latents import write_manifest
from tread_lab.data.measure import faults, measure
from tread_lab.data.source import open_store
from tread_lab.data.stored import Posterior, Store


def test_measures_are_those_of_numpy(packed: Path) -> None:
    measured, x_NCHW = measure(open_store("latents", packed)), LATENTS.astype(np.float64)
    assert measured.counts == (6, 6, 6, 6, 6, 5, 5) and measured.shape == (4, 8, 8)
    assert measured.mean_C == pytest.approx(x_NCHW.mean(axis=(0, 2, 3)), abs=1e-12)
    assert measured.deviation_C == pytest.approx(x_NCHW.std(axis=(0, 2, 3)), rel=1e-12)
    assert measured.deviation == pytest.approx(x_NCHW.std(), rel=1e-12) and measured.spread == 0
    assert (measured.lowest, measured.highest) == (x_NCHW.min(), x_NCHW.max())
    assert (x_NCHW * measured.scale_for(0.5)).std() == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize(
    ("posterior", "behind"), [("log_variance", math.log(4.0)), ("deviation", 2.0)]
)
def test_the_posteriors_variance_counts(posterior: Posterior, behind: float) -> None:
    """Both posteriors have the deviation 2."""
    x_NCHW = LATENTS.astype(np.float64)
    store = Store.__new__(Store)
    store.shape, store.labels, store.posterior = (4, 8, 8), np.zeros(40, np.int64), posterior
    both_NCHW = np.concatenate([x_NCHW, np.full_like(x_NCHW, behind)], axis=1)
    store.read = lambda ids, mirrored=None: both_NCHW[ids]  # type: ignore[method-assign]
    measured = measure(store)
    assert measured.spread == pytest.approx(2.0, rel=1e-12)
    assert measured.deviation == pytest.approx(np.sqrt(x_NCHW.var() + 4), rel=1e-12)


@pytest.fixture
def described(packed: Path) -> Path:
    """Packed arrays with mirrored ones, captions and a manifest."""
    np.save(packed / "latents_flip.npy", LATENTS)
    (packed / "captions.jsonl").write_text('{"captions": ["a"]}\n' * 40)
    facts = {"made_with": {"scale": 0.93, "classes": 7}}
    names = ("latents.npy", "latents_flip.npy", "labels.npy", "captions.jsonl")
    write_manifest(packed, facts, names)
    return packed


def test_a_whole_data_set_has_no_faults(described: Path, shards: Path) -> None:
    assert list(faults("latents", described)) == []
    assert list(faults("shards", shards, classes=7)) == []


NAN = [((3, 0, 0, 0), np.nan), ((8, 1, 1, 1), np.inf)]


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("latents", NAN, "values: must be finite, got others in 2 samples (3, 8)"),
        ("latents_flip", NAN, "mirrored values: must be finite, got others in 2 samples (3, 8)"),
        ("labels", [(5, 7)], "labels: must be in 0..6, got others in 1 samples (5)"),
        ("labels", [(slice(0, None), 1)], "classes without a sample: 0, 2, 3, 4, 5, ... (6 of 7)"),
    ],
)
def test_each_fault_is_one_line(
    described: Path, name: str, values: list[tuple[Any, float]], said: str
) -> None:
    array = np.load(described / f"{name}.npy")
    for place, value in values:
        array[place] = value
    np.save(described / f"{name}.npy", array)
    checksum, line = faults("latents", described)
    assert f"{name}.npy: its checksum differs" in checksum and said in line
