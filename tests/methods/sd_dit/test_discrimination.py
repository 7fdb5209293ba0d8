"""Claims about SD-DiT: both losses against a reference in float64, its teacher, its parameters."""

# B batch, N tokens, K prototypes

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.backbones.float64 import (
    Weights,
    block,
    embedded,
    exact,
    image,
    linear,
    norm,
    sigma,
    silu,
    softmax,
    woken,
)
from tests.train.runs import CPU, small_run
from tread_lab.config import RunSpec, decode
from tread_lab.cost.training import cost
from tread_lab.methods.sd_dit.discrimination import Discrimination, Head
from tread_lab.methods.sd_dit.spec import DiscriminationLoss
from tread_lab.records.run_folder import RunFolder
from tread_lab.train.assemble import build_network
from tread_lab.train.batches import Batch
from tread_lab.train.trainer import Trainer

SIDE, DEPTH, HEADS = 4, 4, 2
PUBLISHED = {"kind": "mask", "fill": "entry"}
LOSS: dict[str, Any] = {
    "kind": "discrimination",
    "prototypes": 6,
    "hidden": 12,
    "bottleneck": 4,
    "weight": 0.5,
}


def sd_dit(**changes: Any) -> RunSpec:
    tree = {
        "routes": [{"start": 0, "end": "B-1", "rate": 0.2}],
        "bypass": {"kind": "mask", "depth": 2, "width": 8, "heads": 2, "fill": "entry"},
        "loss": LOSS,
    }
    return small_run(**{**tree, **changes})


def encoder(w: Weights, z: np.ndarray, t: float, y: int, places: list[int]) -> tuple[Any, ...]:
    """Tokens that entered, those at `places` after all blocks, and the conditioning."""
    entered, c = embedded(w, z, t, y, 4)
    x = entered[places]
    for l in range(DEPTH):
        x = block(w, f"blocks.{l}", x, c, HEADS, places, SIDE)
    return entered, x, c


def decoder(w: Weights, entered: np.ndarray, x: np.ndarray, c: np.ndarray, at: list[int]) -> Any:
    """F of the visible tokens after the encoder and the others as they entered it."""
    tokens = entered.copy()
    tokens[at] = x
    shift, scale = np.split(linear(w, "re_enter.adaLN_modulation.1", silu(c)), 2)
    tokens = linear(w, "re_enter.adapter", norm(tokens) * (1 + scale) + shift)
    tokens = tokens + w["re_enter.pos_embed"][0]
    for l in range(2):
        tokens = block(w, f"re_enter.blocks.{l}", tokens, c, 2, [*range(SIDE * SIDE)], SIDE)
    return image(w, tokens, c, 4)


def head(w: Weights, x: np.ndarray) -> np.ndarray:
    for l in (0, 2):
        x = linear(w, f"mlp.{l}", x)
        x = 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    x, rows = linear(w, "mlp.4", x), w["prototypes_KE"]
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return x @ (rows / np.linalg.norm(rows, axis=1, keepdims=True)).T


def part_of(live: Trainer) -> Discrimination:
    (part,) = live.parts
    assert isinstance(part, Discrimination)
    return part


def reference(live: Trainer, batch: Batch) -> tuple[list[float], np.ndarray]:
    """L_G + L_D / 2 of every sample, and the mean of what the teacher says of seen tokens."""
    part = part_of(live)
    assert batch.routing is not None
    route = batch.routing[0]
    real_BK = torch.ones_like(route.keep_BK) if route.real_BK is None else route.real_BK
    student, teacher = exact(live.network), exact(part.teacher.encoder)
    heads = exact(part.head), exact(part.teacher.head)
    center = part.teacher.center_K.double().numpy()
    losses, logits = [], []
    for b in range(len(batch)):
        x, n = (t[b].double().numpy() for t in (batch.x_BCHW, batch.noise_BCHW))
        y, seen = int(batch.y_B[b]), route.keep_BK[b][real_BK[b].bool()].tolist()
        level = sigma(float(batch.u_B[b]))
        z, root = x + level * n, math.sqrt(level**2 + 0.25)
        entered, tokens, c = encoder(student, z / root, math.log(level) / 4, y, seen)
        D = 0.25 / root**2 * z + 0.5 * level / root * decoder(student, entered, tokens, c, seen)
        L_G = root**2 / (0.5 * level) ** 2 * ((D - x) ** 2).mean()
        least, small = 0.002, math.sqrt(0.002**2 + 0.25)
        everywhere = [*range(SIDE * SIDE)]
        _, taught, _ = encoder(teacher, (x + least * n) / small, math.log(least) / 4, y, everywhere)
        said, known = head(heads[0], tokens) / 0.1, head(heads[1], taught[seen])
        logits.append(known)
        p = softmax((known - center) / 0.04)
        L_D = -(p * np.log(softmax(said))).sum(axis=1).mean()
        losses.append(float(L_G + 0.5 * L_D))
    return losses, np.concatenate(logits).mean(axis=0)


@pytest.mark.parametrize("by", ["random", "bernoulli"])  # which pads some samples
def test_losses_and_centre_agree_with_reference(tmp_path: Path, by: str) -> None:
    spec = sd_dit(routes=[{"start": 0, "end": "B-1", "rate": 0.2, "selection": by}])
    with Trainer(spec, RunFolder(tmp_path), CPU) as live:
        part = part_of(live)
        for seed, module in enumerate((live.network, part.head, part.teacher)):
            woken(module, std=0.3, seed=seed)
        part.teacher.center_K.copy_(0.1 * torch.arange(6))
        batch = live.batches.at(0)
        assert batch.routing is not None
        assert batch.routing[0].keep_BK.shape == (8, 13) or by == "bernoulli"
        found = live.objective(live.network, batch)
        losses, mean = reference(live, batch)
        assert found.tolist() == pytest.approx(losses, rel=2e-5)
        before = part.teacher.center_K.double().numpy()
        part.after_step()
        after = part.teacher.center_K.double().numpy()
        assert after == pytest.approx(0.9 * before + 0.1 * mean, abs=1e-6)


def test_teacher_follows_the_student(tmp_path: Path) -> None:
    with Trainer(sd_dit(), RunFolder(tmp_path), CPU) as live:
        part = part_of(live)
        own = dict(part.teacher.named_parameters())

        def student() -> dict[str, torch.Tensor]:
            parts = {"encoder": live.network, "head": part.head}
            named = ((f"{k}.{n}", p) for k, m in parts.items() for n, p in m.named_parameters())
            return {name: p.detach().clone() for name, p in named if name in own}

        assert student().keys() == own.keys()
        assert not any("re_enter" in name or "final_layer" in name for name in own)
        at_start = student()
        assert all(torch.equal(p, at_start[name]) for name, p in own.items())
        live.train_step(live.batches.at(0), lr=1e-2)
        moved = student()
        for name, parameter in own.items():
            expected = 0.996 * at_start[name] + 0.004 * moved[name]
            assert torch.allclose(parameter, expected, atol=1e-7), name
            assert parameter.grad is None
        assert any(not torch.equal(moved[name], at_start[name]) for name in own)


def test_sd_dit_xl_has_the_published_parameters() -> None:
    """TREAD, table S7, gives 740M: student, decoder and head; 739.3M here."""
    data = {"source": "latents", "channels": 4, "size": 32, "classes": 1000}
    routes = [{"start": 0, "end": "B-1", "rate": 0.2}]
    tree = {"model": "DiT-XL/2", "data": data, "routes": routes, "bypass": PUBLISHED}
    spec = decode(RunSpec, {**tree, "loss": "discrimination"})
    with torch.device("meta"):
        network, top = build_network(spec), Head(1152, decode(DiscriminationLoss, {}))
    price = cost(spec)
    sampled = sum(p.numel() for p in network.parameters() if p.requires_grad)
    d, e, h, b, K = 1152, 512, 2048, 256, 8192
    dit = (16 + 1) * d + (d * d + 258 * d) + 1001 * d + 28 * (18 * d * d + 15 * d)
    maps = 2 * d * d + 2 * d + d * e + e
    decoder = 8 * (12 * e * e + 9 * e + 6 * d * e + 6 * e) + 2 * d * e + 2 * e + (e + 1) * 16
    assert dit + maps + decoder == sampled == price.parameters == 730_115_856
    in_head = (d * h + h) + (h * h + h) + (h * b + b) + K * b
    assert in_head == sum(p.numel() for p in top.parameters()) == price.auxiliary == 9_179_392
    assert sampled + in_head == 739_295_248
    assert price.teacher == dit + 256 * d + in_head + K
