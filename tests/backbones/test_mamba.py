"""What Mamba does around its scans: both reading directions, and the causal convolution."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.backbones.float64 import woken
from tread_lab.backbones.mamba import Mixer, causal_convolution


def test_directions_are_exchanged_by_reversal() -> None:
    mixer, other = woken(Mixer(8, 4)), woken(Mixer(8, 4))
    other.forwards.load_state_dict(mixer.backwards.state_dict())
    other.backwards.load_state_dict(mixer.forwards.state_dict())
    x_BND = torch.randn(2, 7, 8)
    with torch.no_grad():
        found, expected = other(x_BND.flip(1)).flip(1), mixer(x_BND)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(mixer(x_BND.flip(1)).flip(1), expected, atol=1e-3)


def test_causal_convolution_is_torchs() -> None:
    x_BNE, weight, bias = torch.randn(2, 7, 6), torch.randn(6, 1, 4), torch.randn(6)
    expected_BEN = F.conv1d(F.pad(x_BNE.mT, (3, 0)), weight, bias, groups=6)
    torch.testing.assert_close(causal_convolution(x_BNE, weight, bias), expected_BEN.mT)
