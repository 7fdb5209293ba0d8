"""Matrices come back as written, and a route's window shows in two numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.synthetic import Synthetic, similarity_matrix, tiny_spec, write_sweep
from tread_lab.analysis.figures.kind import SweepRecords
from tread_lab.analysis.figures.similarity import (
    pair,
    read_similarity,
    window,
    window_means,
)
from tread_lab.frames import trials_frame
from tread_lab.records.lab import Lab


def test_a_recorded_matrix_is_read_with_its_routes(paper_lab: Lab) -> None:
    found = read_similarity(paper_lab.run_of(tiny_spec((2, 8))))
    assert found is not None and found.routes == ((2, 8),)
    assert np.array_equal(found.mean, similarity_matrix((2, 8)))


def test_a_run_without_one_has_none(paper_lab: Lab) -> None:
    assert read_similarity(paper_lab.run_of(tiny_spec((7, 8)))) is None


def test_the_window_takes_in_the_block_before_the_route() -> None:
    assert window((2, 8), 12) == slice(1, 9)
    assert window((0, 8), 12) == slice(0, 9)
    assert window((5, 11), 12) == slice(4, 12)


def test_numbers_of_a_matrix_with_known_blocks() -> None:
    matrix = np.full((6, 6), 0.2)
    matrix[1:4, 1:4] = 0.9
    np.fill_diagonal(matrix, 1.0)
    assert window_means(matrix, (2, 3)) == pytest.approx((0.9, 0.2))
    assert np.isnan(window_means(similarity_matrix((5, 11)), (5, 11))[1])  # nothing to cross


def test_routed_models_are_drawn_together_inside_their_window() -> None:
    for route in ((0, 8), (3, 8)):
        routed = window_means(similarity_matrix(route), route)
        dense = window_means(similarity_matrix(None), route)
        assert routed[0] == pytest.approx(0.97) and routed[0] > dense[0]
        assert routed[0] > routed[1]


def test_the_route_beside_dense_is_the_best_cell_over_all_seeds(tmp_path: Path) -> None:
    shape = Synthetic(routes=((0, 4), (2, 8)), seeds=(0, 1), history=False)
    lab = write_sweep(tmp_path, shape)
    frame = trials_frame(lab, "placement")
    lucky = (frame["start"] == 0) & (frame["seed"] == 0)
    frame.loc[lucky, "gap/heldout"] = -0.003  # less than any of 2->8, which has the lesser mean
    (drawn,) = pair.draw(SweepRecords(lab, frame, frame, frame))
    assert "window of route 2\u21928 " in drawn.caption
