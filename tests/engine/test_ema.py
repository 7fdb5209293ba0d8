"""The average of the weights follows them by 1 - decay a step, and stays at a skipped step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tread_lab.engine.ema import Ema


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
