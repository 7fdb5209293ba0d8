"""A checkpoint with the names and shapes of DiT's public code loads strictly, in every wrapping."""

from __future__ import annotations

import math
import re
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.backbones.published_dit import (
    State,
    loaded,
    published_shapes,
    sit_forward,
    sit_state,
)
from tread_lab.backbones.dit import DiT
from tread_lab.backbones.parts import (
    Attention,
    SwiGLU,
    block_positions,
    rotate,
    sincos_positions,
    turned,
)
from tread_lab.backbones.published_weights import from_sit, read_tensors
from tread_lab.config import ModelSpec, UserError, decode

DEPTH, D, PATCH, SIDE, C, CLASSES = 3, 48, 2, 4, 4, 7
MODEL = decode(ModelSpec, f"DiT-{DEPTH}x{D}x4/{PATCH}")


@pytest.fixture
def state() -> State:
    generator = torch.Generator().manual_seed(0)
    shapes = published_shapes(DEPTH, D, PATCH, SIDE * SIDE, C, CLASSES)
    return {n: 0.1 * torch.randn(shape, generator=generator) for n, shape in shapes.items()}


def network_of(model: ModelSpec) -> DiT:
    """A network of the sizes of `state`; the variance of its output is learned."""
    return DiT(model, channels=C, size=SIDE * PATCH, classes=CLASSES, out_channels=2 * C)


def same(network: torch.nn.Module, state: State) -> bool:
    loaded = network.state_dict()
    return loaded.keys() == state.keys() and all(
        torch.equal(loaded[n], t) for n, t in state.items()
    )


def prefixed(state: State, prefix: str) -> State:
    return {prefix + name: tensor for name, tensor in state.items()}


BESIDE = {"opt": {"lr": 1e-4}, "args": Namespace(model="DiT-XL/2", ckpt=None)}  # DiT's train.py
WRAPPED: dict[str, Callable[[State], dict[str, Any]]] = {
    "bare": lambda s: s,
    "averaged": lambda s: {"ema": s, **BESIDE},
    "averaged and raw": lambda s: {"model": {n: t + 1 for n, t in s.items()}, "ema": s},
    "of several devices": lambda s: {"model": prefixed(s, "module."), **BESIDE},
    "compiled on each": lambda s: {"state_dict": prefixed(s, "module._orig_mod."), **BESIDE},
    "compiled around all": lambda s: {"ema": prefixed(s, "_orig_mod.module."), **BESIDE},
    "TREAD's": lambda s: {"ema_state_dict": prefixed(s, "model."), **BESIDE},
    "blocks compiled one by one": lambda s: {
        re.sub(r"^(blocks\.\d+\.)", r"\1_orig_mod.", n): t for n, t in s.items()
    },
}


@pytest.mark.parametrize("wrapped", WRAPPED.values(), ids=WRAPPED)
def test_training_checkpoints_load_strictly_in_every_wrapping(
    wrapped: Callable[[State], dict[str, Any]], state: State, tmp_path: Path
) -> None:
    torch.save(wrapped(state), tmp_path / "DiT.pt")
    network = loaded(tmp_path / "DiT.pt", network_of(MODEL))
    assert same(network, state) and not network.pos_embed.requires_grad


def test_code_in_a_checkpoint_never_runs(state: State, tmp_path: Path) -> None:
    torch.save({"ema": state, "args": SimpleNamespace(a=1)}, tmp_path / "DiT.pt")
    with pytest.raises(UserError, match=r"not loaded for safety; if you trust it, torch\.save\("):
        read_tensors(tmp_path / "DiT.pt")


def test_a_lightning_checkpoint_loads(state: State, tmp_path: Path) -> None:
    """RMSNorm and SwiGLU by their public names, no norm of queries and keys, as in all published
    configurations; rotary tables are computed."""
    h = int(2 / 3 * 4 * D)
    for l in range(DEPTH):
        for part in ("fc1", "fc2"):
            del state[f"blocks.{l}.mlp.{part}.weight"], state[f"blocks.{l}.mlp.{part}.bias"]
        state |= {
            f"blocks.{l}.norm1.weight": torch.ones(D),
            f"blocks.{l}.norm2.weight": torch.ones(D),
            f"blocks.{l}.mlp.w12.weight": torch.ones(2 * h, D),
            f"blocks.{l}.mlp.w12.bias": torch.ones(2 * h),
            f"blocks.{l}.mlp.w3.weight": torch.ones(D, h),
            f"blocks.{l}.mlp.w3.bias": torch.ones(D),
        }
    state["final_layer.norm_final.weight"] = torch.ones(D)
    stored = {**state, "feat_rope.freqs_cos": torch.ones(SIDE * SIDE, D // 4)}
    torch.save({"ema": stored}, tmp_path / "Lightning.pt")
    model = decode(ModelSpec, f"LightningDiT-{DEPTH}x{D}x4/{PATCH}")
    assert same(loaded(tmp_path / "Lightning.pt", network_of(model)), state)


def test_lightning_xl_has_the_published_parameters() -> None:
    """Counted in hustvl/LightningDiT, 256 tokens of 32 channels; trained without positions."""
    model = decode(ModelSpec, "LightningDiT-XL/1")
    with torch.device("meta"):
        network = DiT(model, channels=32, size=16, classes=1000)
    assert sum(p.numel() for p in network.parameters()) == 675_256_736
    assert sum(p.numel() for p in network.parameters() if p.requires_grad) == 674_961_824


def test_our_positions_are_the_published_ones() -> None:
    """Columns first, sines before cosines: a stored table equals the one we compute."""
    table = sincos_positions(SIDE, D)
    token, column, row = 2 * SIDE + 3, 3, 2
    rate = 10_000 ** (-torch.arange(D // 4, dtype=torch.float64) / (D / 4))
    expected = torch.cat(
        [f(place * rate) for place in (column, row) for f in (torch.sin, torch.cos)]
    )
    torch.testing.assert_close(table[token], expected.float())


def test_rotary_attention_is_that_of_lightningdit() -> None:
    """Pairs of a head's features turn by row, then by column; any tokens may be left out."""
    side, heads, head = 3, 2, 8
    torch.manual_seed(0)
    attention = Attention(heads * head, heads)
    tokens = torch.tensor([1, 5, 6, 8])
    model = ModelSpec(depth=1, width=heads * head, heads=heads, patch=1, rope=True)
    positions_1NP = block_positions(model, side)
    assert positions_1NP is not None
    x_ND = torch.randn(len(tokens), heads * head)
    with torch.no_grad():
        found = attention(x_ND[None], positions_1NP[:, tokens])[0]
        q, k, v = attention.qkv(x_ND).double().view(len(tokens), 3, heads, head).unbind(1)
        rate = 10_000 ** (-torch.arange(head // 4, dtype=torch.float64) / (head // 4))
        angles = [torch.cat([n // side * rate, n % side * rate]) for n in tokens]
        turn = torch.exp(1j * torch.stack(angles))[:, None]
        q, k = (torch.view_as_complex(z.unflatten(2, (-1, 2))) * turn for z in (q, k))
        scores_HNN = torch.einsum("nhf,mhf->hnm", q, k.conj()).real / head**0.5
        out_NHd = torch.einsum("hnm,mhd->nhd", scores_HNN.softmax(2), v)
        expected = attention.proj(out_NHd.flatten(1).float())
    torch.testing.assert_close(found, expected)
    x_BHND = torch.randn(2, heads, side**2, head)
    compiled_BHND = turned(x_BHND, positions_1NP[:, None])  # what a compiler is given
    torch.testing.assert_close(compiled_BHND, rotate(x_BHND, positions_1NP))


@pytest.fixture
def sit() -> State:
    return sit_state(DEPTH, D, PATCH, SIDE, C, CLASSES)


def test_turned_weights_predict_minus_the_velocity(sit: State) -> None:
    ours = DiT(MODEL, channels=C, size=SIDE * PATCH, classes=CLASSES)
    ours.load_state_dict(from_sit(sit))
    torch.manual_seed(0)
    x, y = torch.randn(4, C, SIDE * PATCH, SIDE * PATCH), torch.tensor([0, 3, 6, CLASSES])
    t = torch.tensor([0.0, 0.3, 0.9, 1.0])
    with torch.no_grad():
        found = ours(x, t, y)
    expected = -sit_forward(sit, 4, x, 1 - t, y)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_swiglu_gates_by_its_first_half() -> None:
    """w3 (SiLU(w1 x) * w2 x), as LightningDiT stores it: SiLU(1) = 1 / (1 + 1/e)."""
    mlp = SwiGLU(1, 1)
    mlp.load_state_dict(
        {
            "w12.weight": torch.tensor([[1.0], [10.0]]),
            "w12.bias": torch.zeros(2),
            "w3.weight": torch.tensor([[3.0]]),
            "w3.bias": torch.tensor([0.5]),
        }
    )
    assert mlp(torch.ones(1, 1, 1)).item() == pytest.approx(30 / (1 + math.exp(-1)) + 0.5)
