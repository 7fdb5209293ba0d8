"""Claims about the device, with a pretended machine of two GPUs where CUDA is concerned."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.train.runs import CPU, measured_on_a_gpu, small_run
from tread_lab.config import RunSpec, UserError, decode
from tread_lab.cost.training import cost
from tread_lab.records.run_folder import RunFolder
from tread_lab.train.device import check_memory, cost_on, pick
from tread_lab.train.precision import compile_blocks
from tread_lab.train.trainer import Trainer, train


def test_deterministic_run_refuses_other_kernels(tmp_path: Path) -> None:
    seen: list[bool] = []
    for asked in (True, False):
        spec = small_run(execution={"deterministic": asked})
        for _ in train(spec, RunFolder(tmp_path / str(asked)), CPU):
            seen.append(torch.are_deterministic_algorithms_enabled())
    assert seen == [True] * 6 + [False] * 6


@pytest.mark.parametrize("theirs", [None, "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_gpu_memory_expands_unless_told_otherwise(
    theirs: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {} if theirs is None else {theirs: "max_split_size_mb:512"}
    monkeypatch.setattr(os, "environ", dict(environment))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert pick("cuda") == torch.device("cuda", 0)
    own = {} if theirs else {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert {k: v for k, v in os.environ.items() if "ALLOC" in k} == environment | own


LATENTS = {"source": "latents", "path": "x", "channels": 4, "size": 32, "classes": 1000}
# MB of an image that autograd saves in a training pass, each storage once, weights not counted:
# counted with torch's fake CUDA tensors under CUDA's autocast and its flash attention.
COUNTED = [
    ("DiT-S/2", "fp32", (), 95.884),
    ("DiT-B/2", "fp32", ("1->2",), 176.725),
    ("DiT-XL/2", "bf16", (), 433.538),
    ("DiT-XL/2", "bf16", ("1->2",), 427.641),
    ("LightningDiT-B/2", "bf16", (), 147.044),
    ("LightningDiT-B/2", "fp32", (), 235.697),
    ("RWKV-12x384/2", "bf16", (), 171.625),
    ("RWKV-12x384/2", "fp32", (), 195.509),
    ("Mamba-12x384/2", "bf16", (), 232.592),
    ("Mamba-12x384/2", "fp32", (), 212.521),
]


def latents(model: Any, precision: str, routes: Any = (), **more: Any) -> RunSpec:
    routes = [{"start": 1, "end": 2, "selection": "rows"}] if routes else []
    tree = {"model": model, "data": LATENTS, "precision": precision, "routes": routes, **more}
    return decode(RunSpec, tree)


@pytest.mark.parametrize(("model", "precision", "routes", "counted"), COUNTED)
def test_activations_equal_autograds_on_a_gpu(
    model: str, precision: str, routes: tuple[str, ...], counted: float
) -> None:
    found = cost(latents(model, precision, routes))
    assert found.activation_bytes / 1e6 == pytest.approx(counted, rel=0.02)
    assert 1.0 < (found.activation_bytes + found.working_bytes) / 1e6 / counted < 1.07


LIGHTNING = {"norm": "rms", "mlp": "swiglu", "rope": True}


@pytest.mark.parametrize(
    ("compiled", "model", "routes"),
    [
        (False, {}, []),
        (False, {}, ["1->1"]),
        (True, {**LIGHTNING, "qk_norm": True}, []),
        (True, {"relative_bias": True}, []),
    ],
)
def test_activations_equal_autograds_here(
    compiled: bool, model: dict[str, Any], routes: list[str], tmp_path: Path
) -> None:
    """Of a compiled block, what inductor's partitioner leaves to the backward pass."""
    shape = {"depth": 4, "width": 64, "heads": 2, "patch": 2}
    spec = small_run(model={**shape, **model}, routes=routes)
    saved: dict[int, Tensor] = {}
    with Trainer(spec, RunFolder(tmp_path), CPU) as run:
        if compiled:
            compile_blocks(run.network, backend="aot_eager_decomp_partition")
        weights = {p.untyped_storage().data_ptr() for p in run.network.parameters()}

        def keep(tensor: Tensor) -> Tensor:
            saved.setdefault(tensor.untyped_storage().data_ptr(), tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            run.objective(run.network, run.batches.at(0))
    kept = sum(t.untyped_storage().nbytes() for at, t in saved.items() if at not in weights)
    expected = cost(spec, compiled=compiled).activation_bytes
    assert kept / 8 == pytest.approx(expected, rel=0.03)


def test_gpu_needs_less_than_forecast() -> None:
    for row, step in measured_on_a_gpu():
        forecast = cost_on(step, "cuda").memory_bytes / 1e9
        assert 1.03 < forecast / row["GB"] < 1.07, row["variant"]


EAGER, COMPILED = ({"execution": {"compile": how}} for how in ("none", "blocks"))
NO_STEPS = {"train": {"steps": 0}, "init_from": {"file": "x", "digest": "d"}}


@pytest.mark.parametrize(
    ("changes", "gigabytes", "refused"),
    [
        (EAGER, 84, "^memory: must be at least 128 GB for DiT-XL/2 dense at 256 images per pass,"
         " got 84 GB of .* .H100.. Try execution.micro_batch=128 "),
        (COMPILED, 100, ""),  # in practice it needs less
        (COMPILED, 84, "at least 94.5 GB .* at 256 images per pass"),
        ({"execution": {"micro_batch": 128}}, 84, ""),
        ({}, 10, "got 10 GB .* Try a larger device .one image per pass: "),  # with no micro-batch
        (NO_STEPS, 8, ""),
        (NO_STEPS, 5, r"at least 5\.4 GB .* Try a larger device"),
    ],
)  # fmt: skip
def test_run_too_large_names_a_micro_batch(
    changes: dict[str, Any], gigabytes: int, refused: str
) -> None:
    spec = latents("DiT-XL/2", "bf16", **changes)
    with pytest.raises(UserError, match=refused) if refused else nullcontext():
        check_memory(spec, "cuda", "cuda:0 (H100)", gigabytes * 10**9)
