"""A SiT's weights, turned round, predict what its own forward pass predicts at the other end."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.backbones.float64 import Weights, block, embedded, image
from tests.backbones.published_dit import published_shapes
from tread_lab.backbones.dit import DiT
from tread_lab.backbones.parts import sincos_positions
from tread_lab.backbones.published_sit import from_sit
from tread_lab.specs import ModelSpec, UserError, decode

DEPTH, D, HEADS, PATCH, SIDE, C, CLASSES = 2, 32, 4, 2, 3, 3, 5
State = dict[str, Tensor]


def sit_state(depth: int, d: int, p: int, side: int, c: int, classes: int) -> State:
    """Random tensors with the names of SiT's code, whose output has twice the channels."""
    generator = torch.Generator().manual_seed(1)
    shapes = published_shapes(depth, d, p, side * side, c, classes)
    state = {n: 0.2 * torch.randn(shape, generator=generator) for n, shape in shapes.items()}
    return {**state, "pos_embed": sincos_positions(side, d)[None]}


def sit_forward(state: State, heads: int, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
    """SiT's forward pass by its paper: of twice the channels the first are data - noise."""
    w: Weights = {name: tensor.double().numpy() for name, tensor in state.items()}
    _, channels, p, _ = w["x_embedder.proj.weight"].shape
    depth = len({name.split(".")[1] for name in w if name.startswith("blocks.")})
    outputs, side = [], x.shape[-1] // p
    for z, level, label in zip(x.double().numpy(), t.double().tolist(), y.tolist()):
        h, c = embedded(w, z, level, label, p)
        for l in range(depth):
            h = block(w, f"blocks.{l}", h, c, heads, [*range(side**2)], side)
        outputs.append(image(w, h, c, p)[:channels])
    return torch.from_numpy(np.stack(outputs))


@pytest.fixture
def state() -> State:
    return sit_state(DEPTH, D, PATCH, SIDE, C, CLASSES)


def network() -> DiT:
    model = decode(ModelSpec, f"DiT-{DEPTH}x{D}x{HEADS}/{PATCH}")
    return DiT(model, channels=C, size=SIDE * PATCH, classes=CLASSES)


def test_a_lightningdit_is_turned_in_the_same_way() -> None:
    """It has SiT's transport and no half of its channels that is dropped."""
    model = decode(ModelSpec, f"LightningDiT-{DEPTH}x{D}x{HEADS}/{PATCH}")
    theirs, ours = (DiT(model, channels=C, size=SIDE * PATCH, classes=CLASSES) for _ in range(2))
    generator = torch.Generator().manual_seed(2)
    weights = {
        name: tensor
        if name == "pos_embed"
        else 0.2 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in theirs.state_dict().items()
    }
    theirs.load_state_dict(weights)
    ours.load_state_dict(from_sit(weights))
    x, y = (
        torch.randn(3, C, SIDE * PATCH, SIDE * PATCH, generator=generator),
        torch.tensor([0, 2, 4]),
    )
    t = torch.tensor([0.0, 0.25, 1.0])
    with torch.no_grad():
        found, expected = ours(x, t, y), -theirs(x, 1 - t, y)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(found, -theirs(x, t, y), atol=0.1)


def test_turned_weights_predict_minus_the_velocity_at_the_other_end(state: State) -> None:
    ours = network()
    ours.load_state_dict(from_sit(state))
    torch.manual_seed(0)
    x, y = torch.randn(4, C, SIDE * PATCH, SIDE * PATCH), torch.tensor([0, 3, 4, CLASSES])
    t = torch.tensor([0.0, 0.3, 0.9, 1.0])
    with torch.no_grad():
        found = ours(x, t, y)
    expected = -sit_forward(state, HEADS, x, 1 - t, y)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_a_sit_without_the_second_half_turns_alike(state: State) -> None:
    half = dict(state)
    for part in ("weight", "bias"):
        rows = state[f"final_layer.linear.{part}"]
        half[f"final_layer.linear.{part}"] = torch.cat(
            [rows[2 * C * k : 2 * C * k + C] for k in range(PATCH**2)]
        )
    found, expected = from_sit(half), from_sit(state)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_what_is_no_sit_is_refused(state: State) -> None:
    with pytest.raises(UserError, match=r"final_layer.linear.bias has 5 rows, and a SiT's has 24"):
        from_sit({**state, "final_layer.linear.bias": torch.zeros(5)})
    with pytest.raises(UserError, match=r"t_embedder\.mlp\.0\.weight is missing"):
        from_sit({n: x for n, x in state.items() if not n.startswith("t_embedder")})
