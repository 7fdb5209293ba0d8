"""Files of reference statistics: what ADM's evaluator takes, and one line for what it cannot."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tread_lab.config import UserError
from tread_lab.config.metrics import ReferenceSpec
from tread_lab.evaluate import reference_file
from tread_lab.evaluate.reference_file import (
    open_reference,
    reference_path,
)

ALL = ("fid", "sfid", "recall")
Arrays = dict[str, NDArray[Any]]


WIDTHS = {"pool": 5, "spatial": 3}


@pytest.fixture
def arrays(monkeypatch: pytest.MonkeyPatch) -> Arrays:
    """What a file holds of features that are fewer than Inception's."""
    monkeypatch.setattr(reference_file, "WIDTHS", WIDTHS)
    random = np.random.default_rng(0)
    return {
        "mu": random.normal(size=5),
        "sigma": np.eye(5) + 5e-5 * np.eye(5, k=1) - np.diag([0, 0, 0, 0, 1 + 5e-7]),  # rounded
        "mu_s": random.normal(size=3),
        "sigma_s": np.eye(3),
        "arr_0": random.integers(0, 256, (100, 8, 8, 3), dtype=np.uint8),
    }


def spec(path: Path) -> ReferenceSpec:
    return ReferenceSpec(name="places", path=str(path))


def written(path: Path, arrays: Arrays) -> ReferenceSpec:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return spec(path)


def test_moments_and_images_are_those_of_the_file(tmp_path: Path, arrays: Arrays) -> None:
    file = open_reference(written(tmp_path / "x.npz", arrays), ALL)
    for layer, keys in {"pool": ("mu", "sigma"), "spatial": ("mu_s", "sigma_s")}.items():
        for found, key in zip(file.moments[layer], keys, strict=True):
            assert np.array_equal(found, arrays[key])
    batches = list(file.batches(30))
    assert [len(batch) for batch in batches] == [30, 30, 30, 10]
    assert np.array_equal(np.concatenate(batches), arrays["arr_0"].transpose(0, 3, 1, 2))


def test_only_what_the_metrics_need_is_asked_for(tmp_path: Path, arrays: Arrays) -> None:
    whole = written(tmp_path / "whole.npz", arrays)
    cases = ((["fid", "is"], {"pool"}), (["is"], set()), (["sfid", "recall"], {"spatial"}))
    for metrics, layers in cases:
        assert open_reference(whole, metrics).moments.keys() == layers
    few = written(tmp_path / "x.npz", {key: arrays[key] for key in ("mu", "sigma")})
    assert open_reference(few, ["fid"]).shape is None
    with pytest.raises(UserError, match="mu_s or sigma_s is absent"):
        open_reference(few, ["fid", "sfid"])
    with pytest.raises(UserError, match=r"must hold the images arr_0, got none$"):
        open_reference(few, ["precision"])


def changed(**other: Any) -> Callable[[Arrays], Arrays]:
    return lambda arrays: {**arrays, **other}


WRONG: dict[str, Callable[[Arrays], Arrays]] = {
    "other dimensions": changed(mu=np.zeros(4), sigma=np.eye(4)),
    "a vector of variances": changed(sigma=np.ones(5)),
    "not symmetric": changed(sigma_s=np.eye(3) + 2e-4 * np.eye(3, k=1)),
    "not finite": changed(sigma=np.where(np.eye(5, k=1), np.nan, 1)),
    "no finite mean": changed(mu=np.full(5, np.inf)),
    "negative variance": changed(sigma=np.diag([1, 1, 1, 1, -2e-6])),
    "whole numbers": changed(mu=np.zeros(5, int)),
    "floating images": changed(arr_0=np.zeros((100, 8, 8, 3))),
    "channels first": changed(arr_0=np.zeros((100, 3, 8, 8), np.uint8)),
    "two channels": changed(arr_0=np.zeros((100, 8, 8, 2), np.uint8)),
    "Fortran's": changed(arr_0=np.asfortranarray(np.zeros((100, 8, 8, 3), np.uint8))),
    "few images": changed(arr_0=np.zeros((99, 8, 8, 3), np.uint8)),
    "pickled": changed(mu=np.array([{}])),
    "pickled images": changed(arr_0=np.array([{}])),
    "nothing": lambda arrays: {"x": np.zeros(3)},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_one_line(tmp_path: Path, arrays: Arrays, name: str) -> None:
    made = written(tmp_path / "x.npz", WRONG[name](arrays))
    with pytest.raises(UserError, match=r"^reference places: .*x.npz: .*$"):
        open_reference(made, ALL)


def test_a_damaged_file_is_one_line(tmp_path: Path, arrays: Arrays) -> None:
    whole, path = tmp_path / "whole.npz", tmp_path / "x.npz"
    np.savez(whole, arr_0=arrays["arr_0"])
    content = whole.read_bytes()
    with zipfile.ZipFile(whole) as made, zipfile.ZipFile(path, "w") as short:
        short.writestr("arr_0.npy", made.read("arr_0.npy")[:-1])  # a whole archive all the same
    for damaged in (path.read_bytes(), b"", b"no archive", content[: len(content) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"^reference places: .*x.npz: .*$"):
            open_reference(spec(path), ALL)
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 64
    path.write_bytes(bytes(flipped))
    file = open_reference(spec(path), ALL)
    with pytest.raises(UserError, match=r"CRC"):
        list(file.batches(64))


def test_the_path_that_is_typed_comes_before_the_folder_of_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TREAD_LAB_REFERENCES", raising=False)
    with pytest.raises(UserError, match="reference imagenet256: where is it"):
        reference_path(ReferenceSpec(name="imagenet256"))
    named = ReferenceSpec(name="imagenet256", path=str(tmp_path / "own.npz"))
    with pytest.raises(UserError, match=r"no file at .*own.npz; name the .npz by reference.path"):
        reference_path(named)
    (tmp_path / "own.npz").touch()
    assert reference_path(named).name == "own.npz"
    monkeypatch.setenv("TREAD_LAB_REFERENCES", str(tmp_path))
    assert reference_path(named).name == "own.npz"
    for file in ("VIRTUAL_imagenet256_labeled.npz", "imagenet256.npz"):
        (tmp_path / file).touch()
        assert reference_path(ReferenceSpec(name="imagenet256")).name == file
        assert reference_path(named).name == "own.npz"
    (tmp_path / "own.npz").unlink()  # as on another machine
    assert reference_path(named).name == "imagenet256.npz"
