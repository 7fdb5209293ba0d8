"""AdamW is torch's, and a learning rate on the device is set where it lies."""

from __future__ import annotations

import torch
from torch import nn

from tread_lab.engine.optimizer import adamw, make_capturable, set_learning_rate
from tread_lab.specs.recipe import TrainSpec

RECIPE = TrainSpec(batch=4, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)


def steps_of(optimizer: torch.optim.Optimizer, weight: nn.Parameter) -> torch.Tensor:
    for step in range(4):
        weight.grad = torch.sin(torch.arange(5.0) + step)
        set_learning_rate(optimizer, 0.5 / (step + 1))
        optimizer.step()
    return weight.detach()


def test_it_is_adamw_as_torch_writes_it_in_a_loop() -> None:
    ours, theirs = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
    settings = {"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1, "foreach": False}
    expected = steps_of(torch.optim.AdamW([theirs], **settings), theirs)  # type: ignore[arg-type]
    assert torch.allclose(steps_of(adamw(RECIPE, [ours]), ours), expected, atol=1e-6)


def test_a_rate_on_the_device_keeps_its_place() -> None:
    ours, plain = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
    optimizer = adamw(RECIPE, [ours])
    make_capturable(optimizer, torch.device("cpu"))
    rate = optimizer.param_groups[0]["lr"]
    assert torch.allclose(steps_of(optimizer, ours), steps_of(adamw(RECIPE, [plain]), plain))
    assert optimizer.param_groups[0]["lr"] is rate and float(rate) == 0.125
