"""Time of an evaluation of images, part by part, on a device that may not be here."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.engine.cost.test_training import imagenet
from tread_lab import cli
from tread_lab.engine.cost.images import (
    ImageWork,
    decoder_macs,
    image_work,
    reference_images,
    reference_work,
)
from tread_lab.engine.cost.rates import RATES, rates_of
from tread_lab.engine.cost.sampling import passes
from tread_lab.engine.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.specs import HeldoutSpec, RunSpec, SamplerSpec, SamplesSpec, UserError, decode
from tread_lab.specs.data import DataSpec
from tread_lab.specs.errors import lookup
from tread_lab.specs.references import ReferenceSpec
from tread_lab.sweep.plan.forecast import Forecast
from tread_lab.sweep.trial.task import Task

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
    seconds = RATES["cpu"].reference_seconds(spec, FID)
    assert seconds["features"] == pytest.approx(images * 11.4e9 / 5.2e10)
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


def test_images_are_sampled_in_the_precision_of_the_sampler() -> None:
    rates, exact = RATES["cpu"], replace(S2, precision="fp32")
    assert rates.pass_seconds(exact, FID) == rates.pass_seconds(S2, FID)
    fp32 = replace(FID, sampler=SamplerSpec(precision="fp32"))
    slower = 8.6e10 / 1.9e10
    assert rates.pass_seconds(S2, FID) == pytest.approx(slower * rates.pass_seconds(S2, fp32))
    assert rates.pass_seconds(exact, HeldoutSpec()) == rates.pass_seconds(S2, HeldoutSpec())


def test_fid_of_10k_has_four_parts_on_a_cpu_and_an_h200() -> None:
    for device, sampling, decoding, features in (
        ("H200", 0.3 * 989e12, 0.3 * 494.5e12, 0.3 * 67e12),
        ("cpu", 1.9e10, 1.15e11, 5.2e10),
    ):
        rates = RATES[device]
        parts = rates.image_seconds(S2, FID)
        assert parts == rates.reference_seconds(S2, FID)
        assert rates.image_seconds(S2, HeldoutSpec()) == {}  # a loss has no images
        assert rates.pass_seconds(S2, FID) == pytest.approx(1e4 * 79 * 2 * 6.056e9 / sampling, 0.01)
        assert parts["decoding"] == pytest.approx(1e4 * 0.622e12 / decoding, rel=0.01)
        assert parts["features"] == pytest.approx(1e4 * 11.4e9 / features, rel=0.01)


def test_every_rate_says_where_it_comes_from() -> None:
    assert {name: rates.source.split()[0] for name, rates in RATES.items()} == {
        "cpu": "measured",
        "A100": "stated:",
        "H100": "stated:",
        "H200": "stated:",
        "H800": "stated:",
    }
    for rates in RATES.values():
        assert set(rates.training) == set(rates.sampling) == {"fp32", "tf32", "bf16", "fp16"}


def test_the_stated_rates_are_these() -> None:
    cpu, a100, h200 = (RATES[name] for name in ("cpu", "A100", "H200"))
    assert cpu.training == {"fp32": 7.9e10, "bf16": 1.4e10, "fp16": 1.4e10, "tf32": 7.9e10}
    assert cpu.sampling == {"fp32": 8.6e10, "bf16": 1.9e10, "fp16": 1.9e10, "tf32": 8.6e10}
    assert (cpu.decoding, cpu.features) == (1.15e11, 5.2e10)
    peaks = {"bf16": 312e12, "fp16": 312e12, "tf32": 156e12, "fp32": 19.5e12}
    assert a100.training == {name: 0.25 * peak for name, peak in peaks.items()}
    assert a100.sampling == {name: 0.3 * peak for name, peak in peaks.items()}
    assert (a100.decoding, a100.features) == (0.3 * 156e12, 0.3 * 19.5e12)
    assert h200.training["fp32"] == 0.25 * 67e12 and h200.training["tf32"] == 0.25 * 494.5e12
    assert [rates.device for rates in RATES.values()] == list(RATES)


def test_training_is_paid_in_the_precision_of_the_run() -> None:
    flops = cost(S2).train_flops
    for precision, rate in (("bf16", 78e12), ("tf32", 39e12), ("fp32", 4.875e12)):
        seconds = RATES["A100"].train_seconds(replace(S2, precision=precision))
        assert seconds == pytest.approx(flops / rate)
    probe = RATES["A100"].pass_seconds(replace(S2, precision="bf16"), HeldoutSpec())
    assert probe == pytest.approx(passes(S2, HeldoutSpec())[1] / (0.3 * 19.5e12))  # fp32


def test_an_unknown_device_has_a_near_miss() -> None:
    with pytest.raises(UserError, match="did you mean 'H200'"):
        lookup(RATES, "H20", "--device-rates")
    assert rates_of("cpu", "x86_64 x1 threads") is RATES["cpu"]
    assert rates_of("cuda", "NVIDIA H200") is RATES["H200"]
    assert rates_of("cuda", "NVIDIA GeForce") is None


def test_the_forecast_counts_references_once_for_all_runs(tmp_path: Path) -> None:
    tasks = [Task(imagenet("S", "2->8", seed=seed), (FID,)) for seed in (0, 1)]
    forecast = Forecast(Lab.at(tmp_path), rates=RATES["H200"])
    one, two = (forecast.total(tasks[:n]).seconds or 0.0 for n in (1, 2))
    parts = RATES["H200"].image_seconds(S2, FID)
    references = sum(RATES["H200"].reference_seconds(S2, FID).values())
    each = RATES["H200"].train_seconds(S2) + RATES["H200"].pass_seconds(S2, FID)
    each += parts["decoding"] + parts["features"] + 0.5
    assert [one, two] == pytest.approx([each + references, 2 * each + references])
    assert forecast.seconds(tasks[0]) is None  # stated rates bind no budget


def test_the_plan_of_imagenet_prints_the_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", "selection_rate", "experiment=s2_imagenet256", "--root", str(tmp_path)]
    command.append("reference=heldout")
    assert cli.main([*command, "--plan", "--device-rates", "H200"]) == 0
    captured = capsys.readouterr()
    said = " ".join((captured.out + captured.err).split())
    assert "fid[heldout]@10k of one run: sampling 32 s, decoding 42 s, features 6 s" in said
    assert "references once for the lab: decoding 42 s, features 6 s" in said
    assert "from stated rates of H200" in said
    assert "exact fp32" not in said
    exact = ["sampler.precision=fp32", "--plan", "--device-rates", "H200"]
    assert cli.main([*command, *exact]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "sampled in exact fp32 on a GPU: fid" in said
    assert "15 times faster by stated rates of H200" in said
    assert cli.main([*command, "--device-rates", "H200"]) == 2
    assert "add --plan" in capsys.readouterr().err


def test_cost_adds_the_times_of_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cost", "--experiment", "s2_imagenet256", "--device-rates", "A100"]) == 0
    assert "decoding of references" not in capsys.readouterr().out
    heldout = ["cost", "reference=heldout", "--experiment", "s2_imagenet256"]
    assert cli.main([*heldout, "--device-rates", "A100"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "training time" in said and "decoding of references" in said


def test_a_plan_says_parameters_device_hours_and_their_price(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An image costs 3 x 2 x 6.056 GMAC; an H200 trains at a quarter of 989 TFLOP/s."""
    Path("s.yaml").write_text("experiment: s2_imagenet256\nbaseline: null\nevaluate: []\n")
    command = ["sweep", "s.yaml", "data.path=LATENTS", "--plan", "--device-rates", "H200"]
    assert cli.main([*command, "--price-per-hour", "3"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    hours = 400_000 * 256 * 6 * 6.056e9 / (0.25 * 989e12) / 3600
    assert "parameters: DiT-S/2 32,858,896" in out
    said = f"{hours:,.3g} device-hours of H200: training {hours:,.3g}, evaluations 0"
    assert said in out
    bill = re.search(r"at 3 an hour ([\d.]+)", out)
    assert bill and float(bill[1]) == pytest.approx(3 * hours, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--price-per-hour", "3"], "--price-per-hour: of a plan only; add --plan"),
        (["--price-per-hour", "0", "--plan"], "--price-per-hour: a positive number, got 0"),
    ],
)
def test_a_price_that_nothing_would_show_is_refused(
    options: list[str], problem: str, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("s.yaml").write_text("experiment: xl2_imagenet256\nbaseline: null\nevaluate: []\n")
    assert cli.main(["sweep", "s.yaml", "data.path=LATENTS", *options]) == 2
    assert problem in capsys.readouterr().err
