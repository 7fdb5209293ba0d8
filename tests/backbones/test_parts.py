"""Attention runs by the preferred backend, and by torch's where there is none or a mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.utils._python_dispatch import TorchDispatchMode

from tread_lab.backbones.parts import PREFERRED, attend

FLASH = "_scaled_dot_product_flash_attention_for_cpu"


class Noted(TorchDispatchMode):
    """The names of the operations that torch dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def _no_preference() -> Iterator[None]:
    PREFERRED.clear()
    yield
    PREFERRED.clear()


def names_of(call: Callable[[], Tensor]) -> set[str]:
    with Noted() as noted:
        call()
    return noted.names


def test_a_shape_runs_by_its_own_backend() -> None:
    short, long = (torch.randn(2, 2, N, 8) for N in (16, 32))
    PREFERRED[16, 8, torch.float32] = SDPBackend.MATH
    assert FLASH not in names_of(lambda: attend(short, short, short))
    assert FLASH in names_of(lambda: attend(long, long, long))


def test_what_a_backend_cannot_do_goes_to_another() -> None:
    x = torch.randn(2, 2, 16, 8)
    PREFERRED[16, 8, torch.float32] = SDPBackend.CUDNN_ATTENTION  # a GPU's
    assert torch.allclose(attend(x, x, x), F.scaled_dot_product_attention(x, x, x), atol=1e-6)


def test_a_mask_leaves_the_choice_to_torch() -> None:
    x, seen = torch.randn(2, 2, 16, 8), (torch.arange(16) < 9)[None, None, None]
    PREFERRED[16, 8, torch.float32] = SDPBackend.MATH
    assert FLASH in names_of(lambda: attend(x, x, x, seen))
    alone = F.scaled_dot_product_attention(x, x[:, :, :9], x[:, :, :9])
    assert torch.allclose(attend(x, x, x, seen), alone, atol=1e-6)
