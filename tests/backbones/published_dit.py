"""Checkpoints of DiT's and SiT's public code: their tensors, and their way into a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.backbones.float64 import Weights, block, embedded, image
from tread_lab.backbones.parts import sincos_positions
from tread_lab.backbones.published_weights import check_fit, read_tensors

State = dict[str, Tensor]


def published_shapes(
    depth: int, d: int, p: int, tokens: int, c: int, classes: int
) -> dict[str, Any]:
    """Every tensor of a DiT checkpoint, written out from the public code's naming."""
    shapes: dict[str, tuple[int, ...]] = {
        "pos_embed": (1, tokens, d),
        "x_embedder.proj.weight": (d, c, p, p),
        "x_embedder.proj.bias": (d,),
        "t_embedder.mlp.0.weight": (d, 256),
        "t_embedder.mlp.0.bias": (d,),
        "t_embedder.mlp.2.weight": (d, d),
        "t_embedder.mlp.2.bias": (d,),
        "y_embedder.embedding_table.weight": (classes + 1, d),
        "final_layer.linear.weight": (p * p * 2 * c, d),
        "final_layer.linear.bias": (p * p * 2 * c,),
        "final_layer.adaLN_modulation.1.weight": (2 * d, d),
        "final_layer.adaLN_modulation.1.bias": (2 * d,),
    }
    for l in range(depth):
        shapes |= {
            f"blocks.{l}.attn.qkv.weight": (3 * d, d),
            f"blocks.{l}.attn.qkv.bias": (3 * d,),
            f"blocks.{l}.attn.proj.weight": (d, d),
            f"blocks.{l}.attn.proj.bias": (d,),
            f"blocks.{l}.mlp.fc1.weight": (4 * d, d),
            f"blocks.{l}.mlp.fc1.bias": (4 * d,),
            f"blocks.{l}.mlp.fc2.weight": (d, 4 * d),
            f"blocks.{l}.mlp.fc2.bias": (d,),
            f"blocks.{l}.adaLN_modulation.1.weight": (6 * d, d),
            f"blocks.{l}.adaLN_modulation.1.bias": (6 * d,),
        }
    return shapes


def loaded(path: Path, network: nn.Module) -> nn.Module:
    """Return the network with the weights of a file, as a run takes those of `init_from.file`."""
    state = read_tensors(path)
    check_fit(state, network)
    network.load_state_dict({**network.state_dict(), **state})
    return network


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
