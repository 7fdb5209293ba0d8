"""AdamW is torch's; learning rates and averages are those of their formulas."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tread_lab.config import TrainSpec
from tread_lab.train.optimizer import Ema, learning_rates, optimizers

RECIPE = TrainSpec(batch=4, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)


def steps_of(optimizer: torch.optim.Optimizer, weight: nn.Parameter) -> torch.Tensor:
    for step in range(4):
        weight.grad = torch.sin(torch.arange(5.0) + step)
        optimizer.param_groups[0]["lr"] = 0.5 / (step + 1)
        optimizer.step()
    return weight.detach()


def test_adamw_equals_torchs_loop() -> None:
    ours, theirs = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
    settings = {"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1, "foreach": False}
    expected = steps_of(torch.optim.AdamW([theirs], **settings), theirs)  # type: ignore[arg-type]
    (adamw,) = optimizers(RECIPE, {"w": ours})
    assert torch.allclose(steps_of(adamw, ours), expected, atol=1e-6)


def test_muon_takes_the_matrices_of_blocks() -> None:
    """And moves them as torch's Muon does by itself, at their own rate."""
    recipe = TrainSpec(optimizer="muon", lr=0.1, matrix_lr=0.02, weight_decay=0.1)
    shapes = {"blocks.0.w": (3, 2), "blocks.0.b": (2,), "table.w": (3, 2), "head.0.w": (2, 2)}
    named = {name: nn.Parameter(torch.ones(shape)) for name, shape in shapes.items()}
    muon, adamw = optimizers(recipe, named)
    ours, theirs = named["blocks.0.w"], nn.Parameter(torch.ones(3, 2))
    assert muon.param_groups[0]["params"] == [ours]
    assert [len(group["params"]) for group in adamw.param_groups] == [3]
    alone = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for step in range(3):
        for group in muon.param_groups:
            group["lr"] = recipe.lr * group["scale"]
        ours.grad = theirs.grad = torch.sin(torch.arange(6.0).view(3, 2) + step)
        muon.step()
        alone.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("fields", "rates"),
    [
        ({}, [2.0, 2.0, 2.0, 2.0]),
        ({"warmup": 2}, [2 / 3, 4 / 3, 2.0, 2.0]),
        ({"schedule": "sqrt_decay", "warmup": 1}, [1.0, 2 * 0.75**0.5, 2 * 0.5**0.5, 1.0]),
    ],
)
def test_learning_rate_of_every_step(fields: dict, rates: list[float]) -> None:
    spec = TrainSpec(steps=4, lr=2.0, **fields)
    assert [*map(learning_rates(spec), range(4))] == pytest.approx(rates, rel=1e-12)


def network() -> nn.Linear:
    made = nn.Linear(2, 1)
    with torch.no_grad():
        made.weight.copy_(torch.tensor([[1.0, 2.0]]))
        made.bias.fill_(4.0)
    return made


@pytest.mark.parametrize("skipped", [None, torch.tensor(False)])
def test_ema_is_the_sum_of_steps(skipped: torch.Tensor | None) -> None:
    live = network()
    live.bias.requires_grad_(False)
    ema = Ema(live, 0.75)
    assert list(ema.weights) == ["weight"]
    for step, value in enumerate((5.0, 9.0), start=1):
        with torch.no_grad():
            live.weight.fill_(value)
        ema.update(step, skipped)
    first, second = 0.75 * 1 + 0.25 * 5, 0.75 * 2 + 0.25 * 5
    expected = [0.75 * first + 0.25 * 9, 0.75 * second + 0.25 * 9]
    assert ema.weights["weight"].tolist() == [expected]
    assert live.weight.tolist() == [[9.0, 9.0]]


def test_skipped_step_leaves_the_ema() -> None:
    live = network()
    ema = Ema(live, 0.75)
    with torch.no_grad():
        live.weight.fill_(5.0)
    ema.update(1, torch.tensor(True))
    assert ema.weights["weight"].tolist() == [[1.0, 2.0]]
    ema.load({"weight": torch.tensor([[7.0, 8.0]]), "bias": torch.tensor([9.0])})
    assert ema.weights["weight"].tolist() == [[7.0, 8.0]]
    assert ema.weights["bias"].tolist() == [9.0] and live.bias.tolist() == [4.0]
