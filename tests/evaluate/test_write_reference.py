"""Reference statistics: what the file holds is what numpy computes from the same crops."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.end_to_end.test_data import inception_stands_in, small_inception
from tests.stand_ins import write_images
from tread_lab.cli.main import main
from tread_lab.config.metrics import ReferenceSpec
from tread_lab.data.images import centre_crop
from tread_lab.evaluate import fidelity
from tread_lab.evaluate.reference_file import open_reference

__all__ = ["inception_stands_in"]
pytestmark = pytest.mark.usefixtures("inception_stands_in")
COUNT = 110


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real") / "images"
    write_images(folder, COUNT)
    return folder


def crops(folder: Path, side: int) -> np.ndarray:
    """uint8 [N, side, side, 3] in order of the names."""
    names = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*.png"))
    return np.stack([centre_crop(Image.open(folder / name), side) for name in names])


def command(*words: object) -> int:
    return main(["data", "reference", *map(str, words), "--device", "cpu", "--workers", "1"])


def arrays(path: Path) -> Mapping[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def test_moments_of_all_and_some_images_are_written(
    images: Path, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("--size", 16, "--keep", 100, "--batch", 7)
    assert command(images, "ours.npz", *few, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["images"], told["stored"], told["size"]) == (110, 100, 16)
    assert told["sha256"] == fidelity.sha256(Path("ours.npz"))
    held, x_NHWC = arrays(Path("ours.npz")), crops(images, 16)
    features = small_inception(torch.from_numpy(x_NHWC.transpose(0, 3, 1, 2).copy()))
    for layer, (mu, sigma) in {"pool": ("mu", "sigma"), "spatial": ("mu_s", "sigma_s")}.items():
        x_ND = features[layer].double().numpy()
        assert held[mu].dtype == held[sigma].dtype == np.float64
        np.testing.assert_allclose(held[mu], x_ND.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(held[sigma], np.cov(x_ND, rowvar=False), rtol=1e-9, atol=1e-15)
    places = np.arange(100) * 110 // 100
    np.testing.assert_array_equal(held["arr_0"], x_NHWC[places])
    labels = np.repeat([0, 1, 2], [37, 37, 36])  # images lie sorted by class
    np.testing.assert_array_equal(held["arr_1"], labels[places])
    file = open_reference(ReferenceSpec(name="ours", path="ours.npz"), ("fid", "sfid", "recall"))
    assert file.shape == (100, 16, 16, 3)
    np.testing.assert_array_equal(file.moments["spatial"][1], held["sigma_s"])


def test_what_cannot_be_a_reference_is_one_line(
    images: Path, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*words: object) -> str:
        assert command(*words) == 2
        (line,) = capsys.readouterr().err.strip().split("\n")[-1:]
        return line

    few = "must keep at least 100 images, got 99"
    assert few in refused(images, "x.npz", "--limit", 99)
    assert few in refused(images, "x.npz", "--keep", 99)
    Path("taken.npz").touch()
    for name in ("x", "taken.npz"):
        assert f"{name}: must be a new .npz" in refused(images, name)
    assert not Path("x.npz").exists()


def test_a_damaged_image_leaves_no_file(
    images: Path, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = in_folder / "images"
    shutil.copytree(images, broken)
    (broken / "n00000001" / "n00000001_1.png").write_bytes(b"no image")
    assert command(broken, "x.npz", "--size", 16) == 2
    assert "n00000001/n00000001_1.png: must be readable" in capsys.readouterr().err
    assert [path.name for path in in_folder.glob("*.npz")] == []


def test_a_damaged_image_can_be_left_out_of_moments_and_of_what_is_stored(
    images: Path, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("broken", "without"):
        shutil.copytree(images, folder)
    (Path("broken") / "n00000001" / "n00000001_1.png").write_bytes(b"no image")
    (Path("without") / "n00000001" / "n00000001_1.png").unlink()
    assert command("broken", "a.npz", "--size", 16, "--batch", 7, "--skip-damaged") == 0
    said = capsys.readouterr().out.split()
    assert said[2:8] == ["images", "109", "stored", "109", "damaged", "1"]
    assert command("without", "b.npz", "--size", 16) == 0
    found, expected = arrays(Path("a.npz")), arrays(Path("b.npz"))
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-9, atol=1e-15)
