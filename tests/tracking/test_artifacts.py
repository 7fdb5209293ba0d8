"""Pictures of a run have the same names and contents each time they are made."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.tracking.conftest import HELDOUT, SAMPLES, SIMILARITY, Sweeps, spec_of
from tread_lab.specs import EvaluationSpec, encode, signature
from tread_lab.specs.evaluation_defaults import EvaluationDefaults
from tread_lab.specs.evaluation_text import MetricNames
from tread_lab.tracking.artifacts import (
    _heatmap,
    _thumbnail,
    has_pictures,
    picture_folder,
    picture_key,
    run_files,
)

NAMES = MetricNames(EvaluationDefaults().with_probes((HELDOUT, SIMILARITY, SAMPLES)))


def test_files_are_a_function_of_the_record(sweeps: Sweeps) -> None:
    run = sweeps.finish(spec_of((1, 4)))
    (once, problem), again = (run_files(run, NAMES, step=40, time=7) for _ in range(2))
    assert (once, problem) == again and problem == ""
    assert has_pictures(once)
    folder = picture_folder(NAMES, signature(SAMPLES), encode(SAMPLES))
    assert picture_key(folder) == "pictures/samples_1k"
    pictures = [place for place in once if place.startswith("images/")]
    assert len({place.partition("+step+")[0] for place in pictures}) == 2
    assert all("+step+40+timestamp+7+" in place for place in pictures)
    full = {place.removesuffix(".png") for place in pictures if place.endswith(".png")}
    assert {place.removesuffix("+compressed.webp") for place in pictures if "webp" in place} == full
    assert not any("npz" in place and "similarity" not in place for place in once)


def test_a_picture_of_a_step_before_the_end_has_its_own_step(sweeps: Sweeps) -> None:
    run, early = sweeps.finish(spec_of((1, 4))), replace(SAMPLES, step=20)
    folder = run.evaluation(early)
    folder.path.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder.path / "grid.png")
    folder.write(early, {}, step=20)
    files, problem = run_files(run, NAMES, step=40, time=7)
    assert problem == "" and "samples_1k/step_20/grid.png" in files
    shown = [place for place in files if place.startswith("images/pictures~samples_1k+")]
    assert sorted(place.split("+")[2] for place in shown) == ["20", "20", "40", "40"]


def test_a_matrix_is_a_table_and_a_picture(sweeps: Sweeps) -> None:
    run = sweeps.finish(spec_of((1, 4)))
    files, _ = run_files(run, NAMES, step=40, time=7)
    table = files["layer_similarity/similarity.csv"]
    assert isinstance(table, str)
    rows = [line.split(",") for line in table.splitlines()]
    assert rows[0] == ["block", "0", "1", "2", "3", "4", "5"]
    assert np.array_equal(np.array(rows[1:], dtype=float)[:, 1:], np.eye(6))
    assert files["layer_similarity/similarity.png"] == _heatmap(np.eye(6))


def test_a_run_that_measured_nothing_shows_its_spec(sweeps: Sweeps) -> None:
    run = sweeps.finish(spec_of(None), "failed", reason="boom")
    files, _ = run_files(run, NAMES, step=40, time=7)
    assert set(files) == {"spec.yaml", "result.json"}


@pytest.mark.parametrize(
    ("spec", "name"), [(SIMILARITY, "similarity.npz"), (SAMPLES, "grid.png"), (SIMILARITY, "")]
)
def test_what_cannot_be_read_is_told_and_the_rest_shown(
    spec: EvaluationSpec, name: str, sweeps: Sweeps
) -> None:
    run = sweeps.finish(spec_of((1, 4)))
    folder = run.evaluation(spec)
    if name:
        (folder.path / name).write_bytes(b"PK torn")
    else:
        folder.write(spec, {})
        (folder.path / "similarity.npz").write_bytes(b"")
    files, problem = run_files(run, NAMES, step=40, time=7)
    assert str(folder.path) in problem and "\n" not in problem
    other = "samples_1k/grid.png" if spec is SIMILARITY else "layer_similarity/similarity.csv"
    assert other in files and not any(place.endswith(name or ".npz") for place in files)


def test_thumbnails_are_256_pixels_wide_and_lose_nothing(tmp_path: Path) -> None:
    Image.new("L", (600, 300), 7).save(tmp_path / "a.png")
    small = Image.open(io.BytesIO(_thumbnail(tmp_path / "a.png")))
    assert (small.format, small.mode, small.size) == ("WEBP", "RGB", (256, 128))
    noise = np.random.default_rng(0).integers(0, 256, (32, 48, 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(noise).save(content, format="PNG")
    assert np.array_equal(Image.open(io.BytesIO(_thumbnail(content.getvalue()))), noise)


def test_similarities_from_0_to_1_run_from_dark_to_light() -> None:
    content = _heatmap(np.array([[0.0, 0.25, 0.5], [0.75, 1.0, np.nan], [-1.0, 2.0, 0.125]]))
    image = np.asarray(Image.open(io.BytesIO(content)))
    assert image.shape == (72, 72, 3)
    assert image[::24, ::24].tolist() == image[23::24, 23::24].tolist() == [
        [[68, 1, 84], [59, 82, 139], [33, 145, 140]],
        [[94, 201, 98], [253, 231, 37], [68, 1, 84]],
        [[68, 1, 84], [253, 231, 37], [64, 42, 112]],
    ]  # fmt: skip
