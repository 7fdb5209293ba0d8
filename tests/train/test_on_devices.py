"""What must hold on every device: tried on the CPU, and on a GPU where there is one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.train.runs import CPU, differing, evaluate, small_run, train_until
from tread_lab.config import HeldoutSpec, RunSpec, SamplesSpec, decode
from tread_lab.records import metric_names
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_state import kind_of
from tread_lab.train.trainer import Trainer

CUDA = pytest.param(
    torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cuda"),
    marks=[
        pytest.mark.cuda,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    ],
    id="cuda",
)
on_devices = pytest.mark.parametrize("device", [pytest.param(CPU, id="cpu"), CUDA])
on_cuda = pytest.mark.parametrize("device", [CUDA])


def run_of(precision: str = "fp32", **execution: Any) -> RunSpec:
    settings = {"log_every": 2, "checkpoint_every": 100, **execution}
    return small_run(precision=precision, execution=settings)


@on_cuda
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_resumed_run_equals_undisturbed_bitwise(
    precision: str, device: torch.device, tmp_path: Path
) -> None:
    whole = train_until(run_of(precision), tmp_path / "whole", device=device)
    train_until(run_of(precision), tmp_path / "parts", 2, device=device)
    parts = train_until(run_of(precision), tmp_path / "parts", device=device)
    assert [p.loss for p in parts if p.step > 2] == [p.loss for p in whole if p.step > 2]
    assert differing(RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "parts")) == []


@on_devices
def test_checkpoint_resumes_on_another_device(device: torch.device, tmp_path: Path) -> None:
    whole = train_until(run_of(), tmp_path / "whole")
    train_until(run_of(), tmp_path / "moved", 4, device=device)
    moved = train_until(run_of(), tmp_path / "moved")
    assert moved[-1].step == 6
    assert moved[-1].loss == pytest.approx(whole[-1].loss, rel=1e-3)


@on_devices
def test_routed_run_measures_as_on_cpu(device: torch.device, tmp_path: Path) -> None:
    pytest.importorskip("torch_fidelity", exc_type=ModuleNotFoundError)
    train_until(run_of(), tmp_path)
    folder = RunFolder(tmp_path)
    folder.create(run_of())
    heldout = decode(HeldoutSpec, {"images": 32})
    here = evaluate(folder, heldout, CPU)[metric_names.HELDOUT_LOSS]
    samples = decode(SamplesSpec, {"count": 4, "sampler": {"steps": 2, "sigma_max": 10}})
    place = folder.evaluation(samples).path / "samples.npz"
    evaluate(folder, samples, CPU)
    drawn = np.load(place)["arr_0"].astype(int)
    shutil.rmtree(folder.evaluation(heldout).path)
    shutil.rmtree(folder.evaluation(samples).path)
    there = evaluate(folder, heldout, device)[metric_names.HELDOUT_LOSS]
    evaluate(folder, samples, device)
    assert there == pytest.approx(here, rel=1e-4)
    assert np.abs(np.load(place)["arr_0"].astype(int) - drawn).max() <= 2


@on_cuda
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_compiled_blocks_train_as_eager(
    precision: str, device: torch.device, tmp_path: Path
) -> None:
    eager = train_until(run_of(precision, compile="none"), tmp_path / "eager", device=device)
    blocks = train_until(run_of(precision, compile="blocks"), tmp_path / "blocks", device=device)
    near = {"fp32": 1e-3, "bf16": 2e-2}[precision]
    assert [p.loss for p in blocks] == pytest.approx([p.loss for p in eager], rel=near)


@on_cuda
def test_step_does_not_synchronize(device: torch.device, tmp_path: Path) -> None:
    with Trainer(run_of(), RunFolder(tmp_path), device) as run:
        for step in range(5):
            run.train_step(run.batches.at(step), lr=1e-3)
        torch.cuda.set_sync_debug_mode("error")
        try:
            run.train_step(run.batches.at(5), lr=1e-3)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@on_cuda
def test_gpu_out_of_memory_is_named(device: torch.device) -> None:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(1 << 50, dtype=torch.uint8, device=device)
    assert kind_of(caught.value) == "oom"
