"""A DiT in numpy and float64, one sample at a time, written from the papers; for comparisons."""

# N tokens, D width

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Weights = dict[str, np.ndarray]


def exact(module: nn.Module) -> Weights:
    return {name: tensor.double().numpy() for name, tensor in module.state_dict().items()}


def woken(network: nn.Module, *, std: float = 0.2, seed: int = 0) -> Any:
    """The network with random weights everywhere, so that no zero hides a mistake."""
    torch.manual_seed(seed)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=std)
    return network.eval()


def error(found: Tensor, expected: np.ndarray) -> float:
    """The largest difference over the largest value."""
    return float(np.abs(found.detach().double().numpy() - expected).max() / np.abs(expected).max())


def linear(w: Weights, name: str, x: np.ndarray) -> np.ndarray:
    return x @ w[name + ".weight"].T + w[name + ".bias"]


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def norm(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)


def softmax(x: np.ndarray) -> np.ndarray:
    shares = np.exp(x - x.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def block(
    w: Weights, at: str, x: np.ndarray, c: np.ndarray, heads: int, places: list[int], side: int
) -> np.ndarray:
    """A DiT block on the tokens at `places`; attention has MDT's bias if there is a table."""
    D = x.shape[1]
    head = D // heads
    s1, g1, a1, s2, g2, a2 = np.split(linear(w, f"{at}.adaLN_modulation.1", silu(c)), 6)
    qkv = linear(w, f"{at}.attn.qkv", norm(x) * (1 + g1) + s1)
    table, out = w.get(f"{at}.attn.bias.table"), np.zeros_like(x)
    for h in range(heads):
        q, k, v = (qkv[:, part * D + h * head :][:, :head] for part in range(3))
        products = q @ k.T / math.sqrt(head)
        for i, m in enumerate(places if table is not None else ()):
            for j, n in enumerate(places):
                down, right = m // side - n // side + side - 1, m % side - n % side + side - 1
                products[i, j] += table[down * (2 * side - 1) + right, h]
        out[:, h * head :][:, :head] = softmax(products) @ v
    x = x + a1 * linear(w, f"{at}.attn.proj", out)
    hidden = linear(w, f"{at}.mlp.fc1", norm(x) * (1 + g2) + s2)
    inner = math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)
    return x + a2 * linear(w, f"{at}.mlp.fc2", 0.5 * hidden * (1 + np.tanh(inner)))


def embedded(w: Weights, z: np.ndarray, t: float, y: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens x_ND of an image, and the conditioning c_D."""
    side = z.shape[1] // p
    kernel = w["x_embedder.proj.weight"].reshape(len(w["x_embedder.proj.weight"]), -1)
    patches = (z[:, p * (n // side) :, p * (n % side) :][:, :p, :p] for n in range(side * side))
    x = np.stack([kernel @ patch.reshape(-1) for patch in patches])
    angle = t * np.exp(-math.log(10_000) * np.arange(128) / 128)
    waves = np.concatenate([np.cos(angle), np.sin(angle)])
    level = linear(w, "t_embedder.mlp.2", silu(linear(w, "t_embedder.mlp.0", waves)))
    c = level + w["y_embedder.embedding_table.weight"][y]
    return x + w["x_embedder.proj.bias"] + w["pos_embed"][0], c


def image(w: Weights, x: np.ndarray, c: np.ndarray, p: int) -> np.ndarray:
    """The final layer's patches as an image."""
    side = math.isqrt(len(x))
    shift, scale = np.split(linear(w, "final_layer.adaLN_modulation.1", silu(c)), 2)
    out = linear(w, "final_layer.linear", norm(x) * (1 + scale) + shift)
    whole = np.zeros((out.shape[1] // p**2, side * p, side * p))
    for n in range(side * side):
        pixels_CHW = out[n].reshape(p, p, -1).transpose(2, 0, 1)
        whole[:, p * (n // side) :, p * (n % side) :][:, :p, :p] = pixels_CHW
    return whole


def sigma(u: float) -> float:
    """EDM's noise level at a quantile of ln N(-1.2, 1.2^2), by bisection of the error function."""
    low, high = -10.0, 10.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle / math.sqrt(2)) < 2 * u - 1 else (low, middle)
    return math.exp(-1.2 + 1.2 * low)
