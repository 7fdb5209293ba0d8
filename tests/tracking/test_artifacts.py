"""Pictures of a run have the same names and contents each time they are made."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from tests.tracking.conftest import HELDOUT, SAMPLES, SIMILARITY, Sweeps, spec_of
from tread_lab.tracking.artifacts import has_pictures, picture_key, run_files

PLANNED = (HELDOUT, SIMILARITY, SAMPLES)


def test_files_are_a_function_of_the_record(sweeps: Sweeps) -> None:
    run = sweeps.finish(spec_of((1, 4)))
    once, again = (run_files(run, PLANNED, step=40, time=7) for _ in range(2))
    assert once == again
    assert has_pictures(once)
    assert picture_key(SAMPLES, PLANNED) == "pictures/samples_1k"
    pictures = [place for place in once if place.startswith("images/")]
    assert len({place.partition("+step+")[0] for place in pictures}) == 2
    assert all("+step+40+timestamp+7+" in place for place in pictures)
    assert not any("npz" in place and "similarity" not in place for place in once)


def test_the_image_grid_reads_the_names_as_mlflow_writes_them(sweeps: Sweeps) -> None:
    run = sweeps.finish(spec_of((1, 4)))
    files = run_files(run, PLANNED, step=40, time=7)
    full = next(place for place in files if place.startswith("images/pictures~samples_1k"))
    assert full.endswith(".png")
    assert full.removesuffix(".png") + "+compressed.webp" in files


def test_a_matrix_is_a_table_and_a_picture(sweeps: Sweeps) -> None:
    run = sweeps.finish(spec_of((1, 4)))
    files = run_files(run, PLANNED, step=40, time=7)
    table = files["layer_similarity/similarity.csv"]
    assert isinstance(table, str)
    rows = [line.split(",") for line in table.splitlines()]
    assert rows[0] == ["block", "0", "1", "2", "3", "4", "5"]
    assert np.array_equal(np.array(rows[1:], dtype=float)[:, 1:], np.eye(6))
    picture = files["layer_similarity/similarity.png"]
    assert isinstance(picture, bytes)
    image = np.asarray(Image.open(io.BytesIO(picture)))
    assert tuple(image[0, 0]) == (253, 231, 37) and tuple(image[0, -1]) == (68, 1, 84)


def test_a_run_that_measured_nothing_shows_its_spec(sweeps: Sweeps) -> None:
    run = sweeps.finish(spec_of(None), "failed", reason="boom")
    assert set(run_files(run, PLANNED, step=40, time=7)) == {"spec.yaml", "result.json"}
