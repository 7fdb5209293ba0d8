"""Claims about MDT: forward and loss against a reference in float64, parameters as published."""

# B batch, N tokens, D width

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.backbones.float64 import Weights, block, embedded, error, exact, image, sigma, woken
from tread_lab.config import RunSpec, decode
from tread_lab.cost.training import cost
from tread_lab.diffusion import build_process
from tread_lab.methods.mdt.mdt import BothPasses
from tread_lab.routing import Routing, draw_routing
from tread_lab.routing.select import dense_routing
from tread_lab.train.assemble import build_network
from tread_lab.train.batches import Batch
from tread_lab.train.objective import Objective

SIDE, DEPTH, WIDTH, HEADS, DECODER = 4, 5, 16, 2, 2
N = SIDE * SIDE


def mdt(**changes: Any) -> RunSpec:
    tree = {
        "model": f"MDT-{DEPTH}x{WIDTH}x{HEADS}/4",
        "routes": [{"start": 0, "end": "B-3", "rate": 0.3}],
        "bypass": "mdt",
        "loss": "both",
        "precision": "fp32",
    }
    return decode(RunSpec, {**tree, **changes})


def batch(spec: RunSpec) -> tuple[Batch, Routing]:
    torch.manual_seed(1)
    routing = draw_routing(spec.routes, (3, spec.tokens), "mdt")
    assert routing is not None
    x, noise = torch.randn(2, 3, 1, 16, 16)
    return Batch(
        x, torch.tensor([0, 5, 10]), noise, torch.tensor([0.1, 0.5, 0.9]), routing
    ), routing


def reference(w: Weights, z: np.ndarray, t: float, y: int, kept: list[int] | None) -> np.ndarray:
    """F(z; t, y) of the full latent, or of one of which the encoder sees the kept tokens alone
    (Gao et al. 2023, section 3)."""
    everywhere = list(range(N))
    x, c = embedded(w, z, t, y, 4)
    places = everywhere if kept is None else kept
    x = x[places]
    for l in range(DEPTH - DECODER):
        x = block(w, f"blocks.{l}", x, c, HEADS, places, SIDE)
    u = np.tile(w["re_enter.mask_token"][0], (N, 1))
    u[places] = x
    u = u + w["re_enter.decoder_pos_embed"][0]
    if kept is not None:
        side = block(w, "re_enter.block", u, c, HEADS, everywhere, SIDE)
        masked = [n for n in everywhere if n not in kept]
        u[masked] = side[masked]
    for l in range(DEPTH - DECODER, DEPTH):
        u = block(w, f"blocks.{l}", u, c, HEADS, everywhere, SIDE)
    return image(w, u, c, 4)


def test_both_passes_agree_with_a_reference() -> None:
    spec = mdt()
    network, (seen, (route,)) = woken(build_network(spec)), batch(spec)
    t_B = torch.tensor([0.3, -0.2, 1.0])
    for legs in (None, (route,)):
        found = network(seen.x_BCHW, t_B, seen.y_B, legs)
        for b in range(3):
            kept = None if legs is None else route.keep_BK[b].tolist()
            arguments = seen.x_BCHW[b].double().numpy(), float(t_B[b]), int(seen.y_B[b])
            assert error(found[b], reference(exact(network), *arguments, kept)) < 1e-5
    assert route.keep_BK.shape == (3, 12)  # 16 - floor(0.3 * 16); the published code keeps 11


def test_loss_is_of_both_latents() -> None:
    """L = L_full + weight L_masked under EDM, the process of this run; the paper trains DDPM."""
    spec, weight = mdt(), 1.5
    network, (seen, (route,)) = woken(build_network(spec)), batch(spec)
    found = Objective(spec, build_process(spec.process), [BothPasses(weight, N)])(network, seen)
    w = exact(network)
    for b in range(3):
        x, n = (t[b].double().numpy() for t in (seen.x_BCHW, seen.noise_BCHW))
        level = sigma(float(seen.u_B[b]))
        total, z, root = 0.0, x + level * n, math.sqrt(level**2 + 0.25)
        for kept in (None, route.keep_BK[b].tolist()):
            F = reference(w, z / root, math.log(level) / 4, int(seen.y_B[b]), kept)
            D = 0.25 / root**2 * z + 0.5 * level / root * F
            share = (1 if kept is None else weight) * root**2 / (0.5 * level) ** 2
            total += share * float(((D - x) ** 2).mean())
        assert found[b].item() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("bypass", ["mdt", "sprint"])  # which drops paths in dense steps, too
def test_dense_steps_train_the_full_latent(bypass: str) -> None:
    spec = mdt(bypass=bypass, routes_until=0)
    network, (seen, _) = woken(build_network(spec)), batch(spec)
    routing = dense_routing(spec.routes, (3, N), "mdt", path_drop=spec.bypass.dropped(routed=False))
    dense = replace(seen, routing=routing)
    both, plain = (
        Objective(spec, build_process(spec.process), parts)(network, dense)
        for parts in ([BothPasses(1, N)], [])
    )
    assert torch.equal(both, plain)


def test_mdt_xl_has_the_published_parameters() -> None:
    """TREAD, table S7, gives 675M: what samples, without the side-interpolater (23.9M)."""
    data = {"source": "latents", "channels": 4, "size": 32, "classes": 1000}
    spec = mdt(model="MDT-XL/2", data=data)
    with torch.device("meta"):
        network = build_network(spec)
    d, B, N, H = 1152, 28, 256, 16
    bias = H * 31 * 31
    one = 18 * d * d + 15 * d + bias
    around = (16 + 1) * d + (d * d + 258 * d) + 1001 * d + 2 * d * d + 2 * d + (d + 1) * 16
    sampled = around + B * one + 2 * N * d
    assert sampled == 675_836_624
    found = sum(p.numel() for p in network.parameters())
    assert found == sampled + one + d == 699_758_304 == cost(spec).parameters
    assert cost(spec).unsampled == one + d and cost(spec).positions == 0
