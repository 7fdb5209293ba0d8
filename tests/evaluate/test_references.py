"""Files of reference statistics, read and written: what ADM's evaluator takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from tests.end_to_end.test_data import inception_stands_in, small_inception
from tests.stand_ins import write_images
from tread_lab.cli.main import main
from tread_lab.config import UserError
from tread_lab.config.metrics import ReferenceSpec
from tread_lab.data.content import sha256
from tread_lab.data.images import centre_crop
from tread_lab.evaluate import references
from tread_lab.evaluate.references import open_reference

__all__ = ["inception_stands_in"]

ALL = ("fid", "sfid", "recall")
Arrays = dict[str, NDArray[Any]]


WIDTHS = {"pool": 5, "spatial": 3}


@pytest.fixture
def arrays(monkeypatch: pytest.MonkeyPatch) -> Arrays:
    """What a file holds of features that are fewer than Inception's."""
    monkeypatch.setattr(references, "WIDTHS", WIDTHS)
    random = np.random.default_rng(0)
    return {
        "mu": random.normal(size=5),
        "sigma": np.eye(5),
        "mu_s": random.normal(size=3),
        "sigma_s": np.eye(3),
        "arr_0": random.integers(0, 256, (100, 8, 8, 3), dtype=np.uint8),
    }


def spec(path: Path) -> ReferenceSpec:
    return ReferenceSpec(name="places", path=str(path))


def written(path: Path, arrays: Arrays) -> ReferenceSpec:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return spec(path)


WRONG: dict[str, Arrays] = {
    "other dimensions": {"mu": np.zeros(4), "sigma": np.eye(4)},
    "not finite": {"sigma": np.where(np.eye(5, k=1), np.nan, 1)},
    "no finite mean": {"mu": np.full(5, np.inf)},
    "floating images": {"arr_0": np.zeros((100, 8, 8, 3))},
    "channels first": {"arr_0": np.zeros((100, 3, 8, 8), np.uint8)},
    "few images": {"arr_0": np.zeros((99, 8, 8, 3), np.uint8)},
    "pickled": {"mu": np.array([{}])},
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_file_is_one_line(tmp_path: Path, arrays: Arrays, name: str) -> None:
    made = written(tmp_path / "x.npz", {**arrays, **WRONG[name]})
    with pytest.raises(UserError, match=r"^reference places: .*x.npz: .*$"):
        open_reference(made, ALL)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real") / "images"
    write_images(folder, 110)
    return folder


def crops(folder: Path, side: int) -> np.ndarray:
    """uint8 [N, side, side, 3] in order of the names."""
    names = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*.png"))
    return np.stack([centre_crop(Image.open(folder / name), side) for name in names])


def command(*words: object) -> int:
    return main(["data", "reference", *map(str, words), "--device", "cpu", "--workers", "1"])


def held_by(path: str) -> Mapping[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


@pytest.mark.usefixtures("inception_stands_in")
def test_reference_has_all_moments_some_images(
    images: Path, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("--size", 16, "--keep", 100, "--batch", 7)
    assert command(images, "ours.npz", *few, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["images"], told["stored"], told["size"]) == (110, 100, 16)
    assert told["sha256"] == sha256(Path("ours.npz"))
    held, x_NHWC = held_by("ours.npz"), crops(images, 16)
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
    assert file.shape == (3, 16, 16)
    np.testing.assert_array_equal(file.moments["spatial"][1], held["sigma_s"])
