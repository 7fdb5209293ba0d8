"""Checkpoints of DiT's public code: their tensors, and their way into a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from tread_lab.backbones.published import check_fit, read_tensors


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
