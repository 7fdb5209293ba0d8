"""Matrices come back as written, and a route's window shows in two numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.synthetic import Synthetic, similarity_matrix, write_sweep
from tread_lab.analysis.figures.similarity import (
    similarities,
)
from tread_lab.config import SimilaritySpec
from tread_lab.results import trials_frame


def test_matrices_are_of_the_planned_evaluation(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, Synthetic(routes=((2, 8),), history=False))
    frame, other = trials_frame(lab, "placement"), SimilaritySpec(images=64)
    folder = lab.run(frame["run"].iloc[0]).evaluation(other)
    folder.path.mkdir()
    np.savez(folder.path / "similarity.npz", mean=np.zeros((12, 12)))
    folder.write(other, {"similarity/adjacent": 0.0})  # by another sweep that shares the dense run
    for planned in (frame.attrs["evaluations"], []):
        frame.attrs["evaluations"] = planned
        dense, route = similarities(lab, frame)
        assert np.array_equal(dense.mean, similarity_matrix(None)) and route.routes == ((2, 8),)
