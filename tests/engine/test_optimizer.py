"""AdamW is torch's; learning rates and averages are those of their formulas."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from tread_lab.engine.optimizer import SCHEDULES, Ema, adamw, learning_rates
from tread_lab.specs import TrainSpec, UserError, recipe

RECIPE = TrainSpec(batch=4, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)


def steps_of(optimizer: torch.optim.Optimizer, weight: nn.Parameter) -> torch.Tensor:
    for step in range(4):
        weight.grad = torch.sin(torch.arange(5.0) + step)
        optimizer.param_groups[0]["lr"] = 0.5 / (step + 1)
        optimizer.step()
    return weight.detach()


def test_it_is_adamw_as_torch_writes_it_in_a_loop() -> None:
    ours, theirs = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
    settings = {"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1, "foreach": False}
    expected = steps_of(torch.optim.AdamW([theirs], **settings), theirs)  # type: ignore[arg-type]
    assert torch.allclose(steps_of(adamw(RECIPE, {"w": ours}), ours), expected, atol=1e-6)


def test_every_schedule_of_the_spec_has_a_formula_and_any_other_is_a_near_miss() -> None:
    assert set(recipe.SCHEDULES) == set(SCHEDULES)
    spec = dataclasses.replace(TrainSpec(), schedule="sqrt_decai")
    with pytest.raises(UserError, match=r"unknown 'sqrt_decai', did you mean 'sqrt_decay'\?$"):
        learning_rates(spec)


@pytest.mark.parametrize(
    ("fields", "rates"),
    [
        ({}, [2.0, 2.0, 2.0, 2.0]),
        ({"warmup": 2}, [2 / 3, 4 / 3, 2.0, 2.0]),
        ({"schedule": "sqrt_decay", "warmup": 1}, [1.0, 2 * 0.75**0.5, 2 * 0.5**0.5, 1.0]),
    ],
)
def test_the_learning_rate_of_every_step(fields: dict, rates: list[float]) -> None:
    spec = TrainSpec(steps=4, lr=2.0, **fields)
    assert [*map(learning_rates(spec), range(4))] == pytest.approx(rates, rel=1e-12)


def network() -> nn.Linear:
    made = nn.Linear(2, 1)
    with torch.no_grad():
        made.weight.copy_(torch.tensor([[1.0, 2.0]]))
        made.bias.fill_(4.0)
    return made


@pytest.mark.parametrize("skipped", [None, torch.tensor(False)])
def test_an_average_is_the_sum_of_its_steps(skipped: torch.Tensor | None) -> None:
    live = network()
    live.bias.requires_grad_(False)
    ema = Ema(live, 0.75)
    assert list(ema.weights) == ["weight"]
    for value in (5.0, 9.0):
        with torch.no_grad():
            live.weight.fill_(value)
        ema.update(skipped)
    first, second = 0.75 * 1 + 0.25 * 5, 0.75 * 2 + 0.25 * 5
    expected = [0.75 * first + 0.25 * 9, 0.75 * second + 0.25 * 9]
    assert ema.weights["weight"].tolist() == [expected]
    assert live.weight.tolist() == [[9.0, 9.0]]


def test_a_skipped_step_and_a_later_change_leave_the_average() -> None:
    live = network()
    ema = Ema(live, 0.75)
    with torch.no_grad():
        live.weight.fill_(5.0)
    ema.update(torch.tensor(True))
    assert ema.weights["weight"].tolist() == [[1.0, 2.0]]
    ema.load({"weight": torch.tensor([[7.0, 8.0]]), "bias": torch.tensor([9.0])})
    assert ema.weights["weight"].tolist() == [[7.0, 8.0]]
    assert ema.weights["bias"].tolist() == [9.0] and live.bias.tolist() == [4.0]
