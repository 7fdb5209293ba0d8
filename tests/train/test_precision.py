"""Every precision computes in what it says, refuses what the device lacks, and resumes bitwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.train.runs import CPU, small_run
from tread_lab.config import RunSpec
from tread_lab.records import metric_names
from tread_lab.records.run_folder import RunFolder
from tread_lab.train.device import precisions
from tread_lab.train.precision import (
    RoundedProducts,
    autocast,
    matrix_products,
)
from tread_lab.train.trainer import Trainer

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Trainer]:
    with Trainer(small_run(precision="fp16"), RunFolder(tmp_path), CPU) as run:
        yield run


Seen = set[tuple[torch.dtype, bool]]


def block_products(spec: RunSpec, device: torch.device, folder: Path) -> list[Seen]:
    """What the linear maps of every block put out in one training step, and whether by tf32."""
    seen: list[Seen] = [set() for _ in range(spec.model.depth)]
    with Trainer(spec, RunFolder(folder), device) as run:
        for l, block in enumerate(run.network.blocks):  # type: ignore[arg-type]

            def see(module: nn.Module, args: Any, out: Tensor, l: int = l) -> None:
                seen[l].add((out.dtype, torch.backends.cuda.matmul.allow_tf32))

            for module in block.modules():
                if isinstance(module, nn.Linear):
                    module.register_forward_hook(see)
        run.train_step(run.batches.at(0), lr=1e-3)
    return seen


@pytest.mark.parametrize(
    "device",
    [CPU, pytest.param(torch.device("cuda", 0), marks=[cuda, pytest.mark.cuda])],
    ids=["cpu", "cuda"],
)
@pytest.mark.parametrize(
    ("precision", "fp32_block", "exact"),
    [
        ("bf16", "off", None),
        ("bf16", "j", 1),
        ("bf16", "j+1", 2),
        ("fp16", "j+1", 2),
        ("fp32", "off", None),
    ],
)
def test_fp32_block_alone_runs_in_fp32(
    precision: str, fp32_block: str, exact: int | None, device: torch.device, tmp_path: Path
) -> None:
    if precision not in precisions(device):
        pytest.skip(f"{device} has no {precision}")
    spec = small_run(precision=precision, fp32_block=fp32_block)
    own, half = HALF.get(precision, torch.float32), precision in HALF
    for l, seen in enumerate(block_products(spec, device, tmp_path)):
        assert seen == {(torch.float32 if l == exact else own, half)}


@cuda
def test_tf32_rounds_and_fp32_does_not() -> None:
    x = torch.randn(512, 512, device="cuda")
    exact = (x.double() @ x.double()).float()
    errors = {}
    for precision in ("fp32", "tf32"):
        with matrix_products(precision), autocast(precision, x.device):
            errors[precision] = float((x @ x - exact).abs().max())
    assert errors["tf32"] > 10 * errors["fp32"]


def test_overflows_are_counted_and_survived(live: Trainer) -> None:
    live.scaler.load({**live.scaler.state(), "scale": torch.tensor(2.0**30)})
    before = live.trainable["blocks.0.mlp.fc1.bias"].detach().clone()
    for step in range(30):
        live.train_step(live.batches.at(step), lr=1e-3)
    live.log_window()
    skipped = live.overflows
    live.save()
    with Trainer(live.spec, live.folder, CPU) as again:
        assert (again.resume(), again.overflows) == (30, skipped)
    assert 0 < skipped < 25
    assert not torch.equal(live.trainable["blocks.0.mlp.fc1.bias"], before)
    logged = {e.key: e.value for e in live.folder.entries()}
    assert logged[metric_names.OVERFLOWS] == skipped
    assert 0 < logged["train/gradient_norm"] < 100  # without the scale, which is above 2^5
    assert logged[metric_names.TRAIN_LOSS] == pytest.approx(live.loss) and live.loss < 10


PLACE = 2.0**-8  # half of bf16's last place, relative to the number


def tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(s, generator=generator).requires_grad_() for s in shapes]


def cast(x: Tensor) -> Tensor:
    """The nearest bf16 numbers in fp64."""
    return x.detach().bfloat16().double()


def test_linear_map_is_a_rounded_product() -> None:
    x, w, b = tensors((5, 7, 24), (9, 24), (9,))
    with torch.autocast("cpu", torch.bfloat16), RoundedProducts():
        y = F.linear(x, w, b)
    assert y.dtype == torch.bfloat16
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(4)).bfloat16()
    y.backward(g)
    X, W, B, G = (cast(t).flatten(0, -2) if t.ndim > 1 else cast(t) for t in (x, w, b, g))
    for got, exact in (
        (y, X @ W.T + B),
        (x.grad, G @ W),
        (w.grad, G.T @ X),
        (b.grad, G.sum(0)),
    ):
        assert got is not None
        torch.testing.assert_close(got.double().view_as(exact), exact, rtol=PLACE, atol=1e-5)


def test_attention_is_of_rounded_operands() -> None:
    parts = tensors(*[(2, 3, 10, 8)] * 3)
    bias, seen = torch.randn(10, 10), torch.ones(10, 10).tril().bool()
    q, k, v = (cast(t) for t in parts)
    logits = q @ k.mT / 8**0.5
    expected = {
        None: logits,
        "bias": logits + cast(bias),
        "mask": logits.masked_fill(~seen, float("-inf")),
    }
    for kind, mask in ((None, None), ("bias", bias), ("mask", seen)):
        with torch.autocast("cpu", torch.bfloat16), RoundedProducts():
            out = F.scaled_dot_product_attention(*parts, attn_mask=mask)
        exact = expected[kind].softmax(dim=-1) @ v
        assert out.dtype == torch.bfloat16
        torch.testing.assert_close(out.double(), exact, rtol=PLACE, atol=1e-6)


def test_overflowed_step_changes_only_the_scale(live: Trainer) -> None:
    # a scale at which the gradient of any loss leaves fp16
    scale = torch.tensor(2.0**127, dtype=torch.float64)
    live.scaler.load({**live.scaler.state(), "scale": scale})
    before = {n: p.detach().clone() for n, p in live.trainable.items()}
    live.train_step(live.batches.at(0), lr=1e-3)
    assert int(live.scaler.overflows) == 1 and live.step == 1
    assert float(live.scaler.state()["scale"]) == 2.0**126
    for name, tensor in live.trainable.items():
        assert torch.equal(tensor, before[name])
        assert torch.equal(live.ema.weights[name], before[name])
