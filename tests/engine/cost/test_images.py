"""FLOPs of images beside the sampled network's: decoding, features, and those of references."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.engine.cost.test_training import imagenet
from tread_lab.engine.cost.images import (
    ImageWork,
    decoder_macs,
    image_work,
    reference_images,
    reference_work,
)
from tread_lab.specs import HeldoutSpec, RunSpec, SamplerSpec, SamplesSpec, decode
from tread_lab.specs.data import DataSpec
from tread_lab.specs.references import ReferenceSpec

S2 = imagenet("S", "2->8")
FID = SamplesSpec(metrics=("fid",), count=10_000, sampler=SamplerSpec(precision="bf16"))


def test_the_sd_decoder_costs_062_teraflops_an_image() -> None:
    middle = 18 * 512**2 * 32**2 * 2 + 4 * 512**2 * 32**2 + 2 * 512 * 32**4
    one = 3 * 18 * 512**2 * 32**2 + 9 * 512**2 * 64**2
    two = 3 * 18 * 512**2 * 64**2 + 9 * 512**2 * 128**2
    three = (9 * 512 * 256 + 9 * 256**2 + 512 * 256 + 2 * 18 * 256**2) * 128**2
    four = (9 * 256 * 128 + 9 * 128**2 + 256 * 128 + 2 * 18 * 128**2) * 256**2
    ends = 9 * 4 * 512 * 32**2 + 9 * 128 * 3 * 256**2
    expected = middle + one + two + three + 9 * 256**2 * 256**2 + four + ends
    assert decoder_macs(32) == expected
    assert 2 * expected == pytest.approx(0.62e12, rel=0.005)
    assert decoder_macs(64) > 4 * expected


def test_fid_decodes_and_describes_images_and_references() -> None:
    decode_one = 2 * decoder_macs(32)
    both = ImageWork(10_000 * decode_one, 10_000 * 11.4e9)
    assert image_work(S2, FID) == reference_work(S2, FID) == both
    by_file = replace(FID, reference=ReferenceSpec(name="imagenet256"))
    assert (image_work(S2, by_file), reference_work(S2, by_file)) == (both, ImageWork())
    near = replace(by_file, metrics=("fid", "recall"))
    assert reference_work(S2, near) == ImageWork(0, 10_000 * 11.4e9)
    score = SamplesSpec(metrics=("is",), count=100)
    assert image_work(S2, score) == ImageWork(100 * decode_one, 100 * 11.4e9)
    grid = SamplesSpec(count=64)
    assert image_work(S2, grid) == ImageWork(64 * decode_one, 0)
    for nothing in (score, grid, HeldoutSpec()):
        assert reference_work(S2, nothing) == ImageWork()
    assert image_work(S2, HeldoutSpec()) == ImageWork()
    tiny = decode(RunSpec, {"model": {"depth": 4, "width": 16, "heads": 2}})
    own = SamplesSpec(metrics=("fd",), count=1000)
    assert image_work(tiny, own) == reference_work(tiny, own) == ImageWork()


def latents(folder: Path, heldout: int | None) -> DataSpec:
    """Write 2,400 latents of 4 x 8 x 8, and so many held-out ones beside them."""
    np.save(folder / "latents.npy", np.zeros((2400, 4, 8, 8), np.float16))
    np.save(folder / "labels.npy", np.zeros(2400, np.int64))
    if heldout is not None:
        np.save(folder / "heldout_latents.npy", np.zeros((heldout, 4, 8, 8), np.float16))
        np.save(folder / "heldout_labels.npy", np.zeros(heldout, np.int64))
    return DataSpec(source="latents", path=str(folder), channels=4, size=8)


@pytest.mark.parametrize(("heldout", "images"), [(None, 120), (70, 70)])
def test_references_are_as_many_as_the_data_hold_out(
    heldout: int | None, images: int, tmp_path: Path
) -> None:
    spec = replace(S2, data=latents(tmp_path, heldout))
    expected = ImageWork(images * 2 * decoder_macs(8), images * 11.4e9)
    assert reference_work(spec, FID) == expected
    absent = replace(spec.data, path=str(tmp_path / "absent"))
    assert reference_images(absent, FID) == 10_000


def test_of_a_reference_file_the_images_that_metrics_look_at_count(tmp_path: Path) -> None:
    pictures = np.zeros((150, 8, 8, 3), np.uint8)
    mu, sigma = np.zeros(4), np.zeros((4, 4))  # only their names are looked at
    np.savez(tmp_path / "both.npz", arr_0=pictures, mu=mu, sigma=sigma)
    np.savez(tmp_path / "pictures.npz", arr_0=pictures)
    np.savez(tmp_path / "moments.npz", mu=mu, sigma=sigma)
    found = {
        (name, metric): reference_images(DataSpec(), against(tmp_path, name, metric))
        for name in ("both", "pictures", "moments", "absent")
        for metric in ("fid", "recall", "is")
    }
    assert found == {
        ("both", "fid"): 0, ("both", "recall"): 150, ("both", "is"): 0,
        ("pictures", "fid"): 150, ("pictures", "recall"): 150, ("pictures", "is"): 0,
        ("moments", "fid"): 0, ("moments", "recall"): 0, ("moments", "is"): 0,
        ("absent", "fid"): 0, ("absent", "recall"): 10_000, ("absent", "is"): 0,
    }  # fmt: skip


def against(folder: Path, name: str, metric: str) -> SamplesSpec:
    path = str(folder / f"{name}.npz")
    reference = ReferenceSpec(name=name, path=path)
    return SamplesSpec(metrics=(metric,), count=100, reference=reference)


def test_pixels_are_not_decoded() -> None:
    pixels = replace(S2, data=DataSpec(source="images", path="x", channels=3, size=64))
    assert image_work(pixels, FID) == ImageWork(0, 10_000 * 11.4e9)
    assert reference_work(pixels, FID) == ImageWork(0, 10_000 * 11.4e9)
