"""What Mamba does around its scans: both reading directions, and the causal convolution."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.backbones.float64 import woken
from tread_lab.backbones.mamba import Direction, Mixer, causal_convolution


def test_tokens_in_reverse_are_read_alike_with_the_two_directions_exchanged() -> None:
    mixer, other = woken(Mixer(8, 4)), woken(Mixer(8, 4))
    other.forwards.load_state_dict(mixer.backwards.state_dict())
    other.backwards.load_state_dict(mixer.forwards.state_dict())
    x_BND = torch.randn(2, 7, 8)
    with torch.no_grad():
        found, expected = other(x_BND.flip(1)).flip(1), mixer(x_BND)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(mixer(x_BND.flip(1)).flip(1), expected, atol=1e-3)


def test_the_causal_convolution_is_torchs_over_the_tokens_before() -> None:
    x_BNE, weight, bias = torch.randn(2, 7, 6), torch.randn(6, 1, 4), torch.randn(6)
    expected_BEN = F.conv1d(F.pad(x_BNE.mT, (3, 0)), weight, bias, groups=6)
    torch.testing.assert_close(causal_convolution(x_BNE, weight, bias), expected_BEN.mT)


def test_decay_rates_start_from_1_on_and_steps_between_a_thousandth_and_a_tenth() -> None:
    torch.manual_seed(0)
    direction = Direction(channels=1000, rank=4, state=3)
    direction.initialise()
    assert direction.A_log[7].exp().tolist() == pytest.approx([1.0, 2.0, 3.0])
    assert direction.D.unique().tolist() == [1.0]
    steps_E = F.softplus(direction.dt_proj.bias.detach())
    assert 1e-3 <= steps_E.min() < 1.1e-3 and 0.09 < steps_E.max() <= 0.1
    assert steps_E.log().mean().exp().item() == pytest.approx(1e-2, rel=0.2)
