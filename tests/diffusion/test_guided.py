"""Guidance is one weighted sum: special cases collapse, branches see what the spec says they do."""

# B batch, C channels, H height, W width, N tokens

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.backbones.float64 import woken
from tests.diffusion.images import drawn
from tests.methods.test_bypasses import MODEL
from tread_lab import draws
from tread_lab.config import EDMSpec, FlowSpec, RunSpec, SamplerSpec, decode
from tread_lab.config.guidance import routes_taken
from tread_lab.config.routes import SELECTIONS
from tread_lab.diffusion import build_process
from tread_lab.diffusion.generate import ImageRoutes
from tread_lab.diffusion.guided import Branch, Denoiser, predictions
from tread_lab.routing.select import BatchRoute, Routing
from tread_lab.train.assemble import build_network

CLASSES, CHANNELS, SIDE = 10, 4, 8
SG = {"weight": 1.5, "strong": {"rate": 0.25}, "weak": {"rate": 0.75}}
PROCESSES = pytest.mark.parametrize("process", [EDMSpec(), FlowSpec()], ids=["edm", "flow"])


def run(model: str = "DiT-4x16x2/2", selection: str = "random") -> RunSpec:
    data = {"source": "latents", "channels": CHANNELS, "size": SIDE, "classes": CLASSES}
    tree = {"model": model, "routes": [f"1->2 by {selection}"], "data": data}
    spec = decode(RunSpec, tree)
    return decode(RunSpec, {**tree, "model": {**vars(spec.model), "init": "official_code"}})


def network(seed: int = 0, spec: RunSpec | None = None) -> Denoiser:
    torch.manual_seed(seed)
    return build_network(spec or run()).requires_grad_(False)


@dataclass
class Watched:
    """A network that notes what it is called with."""

    inner: Denoiser
    labels: list[Tensor] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    kept: set[tuple[int, ...]] = field(default_factory=set)

    def __call__(self, x: Tensor, t: Tensor, y: Tensor, routing: Routing | None) -> Tensor:
        self.labels.append(y)
        self.sizes.append(len(x))
        self.tokens.append(routing[0].keep_BK.shape[1] if routing else run().tokens)
        self.kept |= {tuple(routing[0].keep_BK.flatten().tolist())} if routing else set()
        return self.inner(x, t, y, routing)


def images(
    guidance: Any,
    *networks: Denoiser,
    process: EDMSpec | FlowSpec | None = None,
    count: int = 5,
    batch: int = 256,
    **sampler: Any,
) -> Tensor:
    tree = {"steps": 4, "sigma_max": 10, "guidance": guidance, **sampler}
    spec = decode(SamplerSpec, tree)
    steps = [None, *(b.step for b in spec.guidance.branches if b.step is not None)]
    return drawn(
        dict(zip(steps, networks)),
        spec,
        count,
        process=build_process(process or EDMSpec()),
        shape=(CHANNELS, SIDE, SIDE),
        routes=routes_taken(run(), spec.guidance),
        tokens=run().tokens,
        batch=batch,
    )[0]


@PROCESSES
def test_weight_one_is_no_guidance(process: EDMSpec | FlowSpec) -> None:
    plain, one = Watched(network()), Watched(network())
    sparse = {"weight": 1.0, "weak": {"rate": 0.9, "step": 7}, "interval": [0.1, 1]}
    expected = images(1, plain, process=process)
    assert torch.equal(images(sparse, one, network(1), process=process), expected)
    assert one.sizes == plain.sizes == [5] * 7  # Heun: 2 steps - 1


@pytest.mark.parametrize("label", ["class", "none"])
def test_sparse_guidance_drops_asked_classes_alone(label: str) -> None:
    """By default no call sees the null class; the published code drops the class in both."""
    seen = Watched(network())
    images({**SG, "weak": {"rate": 0.75} | ({"label": label} if label == "none" else {})}, seen)
    assert seen.tokens == [12, 4] * 7  # 16 tokens at .25 and .75
    assert len(seen.kept) == 2 * 4  # each level draws its own
    for labels, tokens in zip(seen.labels, seen.tokens):
        dropped = label == "none" and tokens == 4
        assert torch.equal(labels, torch.full((5,), CLASSES) if dropped else seen.labels[0])
    assert (seen.labels[0] < CLASSES).all()


def test_rates_follow_their_schedules() -> None:
    seen = Watched(network())
    schedule = {"weight": 2, "strong": {"rate": "0->0.75"}, "weak": {"rate": "0.75->0"}}
    images(schedule, seen, solver="euler", steps=3)
    # rates 0, .375, .75 and back; in the middle both route 6 of 16 tokens and share one call
    assert seen.tokens == [16, 4, 10, 4, 16]
    assert seen.sizes == [5, 5, 10, 5, 5]
    seen.tokens.clear()
    images(schedule, seen, solver="heun_full", steps=2, process=FlowSpec())
    assert seen.tokens == [16, 4, 4, 16, 4, 16, 4, 16]  # at levels 1, 1/2, 1/2 and 0, the last


@PROCESSES
def test_guidance_acts_within_its_interval_alone(process: EDMSpec | FlowSpec) -> None:
    euler: Any = {"process": process, "solver": "euler"}
    levels = build_process(process).grid(SamplerSpec(steps=4, sigma_max=10, solver="euler"))
    inside, seen = [float(levels[2]), float(levels[1])], Watched(network())
    gated = images({"weight": 3, "interval": inside}, seen, **euler)
    assert seen.sizes == [5, 10, 10, 5]
    whole = images({"weight": 3, "interval": [0, 100]}, network(), **euler)
    plain = images({"weight": 3, "interval": [50, 100]}, network(), **euler)
    assert torch.equal(whole, images(3, network(), **euler))
    assert torch.equal(plain, images(1, network(), **euler))
    assert not torch.equal(gated, whole) and not torch.equal(gated, plain)


DITS = [("DiT-4x16x2/2", s) for s in SELECTIONS.built_in]
SCANS = [("RWKV-4x16/2", "rows"), ("Mamba-4x16/2", "rows")]


@pytest.mark.parametrize(("model", "selection"), [*DITS, *SCANS])
@pytest.mark.parametrize(("rates", "calls"), [((0, 0), 1), ((0.5, 0.5), 1), ((0.25, 0.75), 2)])
def test_batched_pass_equals_single_passes(
    model: str, selection: str, rates: tuple[float, float], calls: int
) -> None:
    spec = run(model, selection)
    seen, process = Watched(network(spec=spec)), build_process(spec.process)
    routes = ImageRoutes(spec.routes, spec.tokens, range(3), torch.device("cpu"))
    z, level_B = torch.randn(3, CHANNELS, SIDE, SIDE), torch.full((3,), 0.7)
    labels = (torch.tensor([0, 1, 2]), torch.full((3,), CLASSES))
    once = (1.0, 1.0, 1.0)
    branches = [Branch(once, seen, y, routes.routing(r, 0)) for y, r in zip(labels, rates)]
    together = predictions(process, branches, z, level_B)
    assert len(seen.sizes) == calls or selection == "bernoulli"  # lengths may be equal by chance
    for branch, out in zip(branches, together):
        y, routing = branch.labels_B, branch.routing
        alone = process.predict(lambda x, t, y=y, r=routing: seen(x, t, y, r), z, level_B)
        torch.testing.assert_close(out, alone, atol=1e-5, rtol=1e-4)


def test_padded_branches_pass_apart() -> None:
    seen, process = Watched(network()), build_process(EDMSpec())
    keep_BK, labels_B = torch.arange(12).expand(3, 12), torch.tensor([0, 1, 2])
    full = BatchRoute(1, 2, keep_BK)
    some = replace(full, real_BK=keep_BK < torch.tensor([[12], [9], [5]]))
    once = (1.0, 1.0, 1.0)
    branches = [Branch(once, seen, labels_B, (route,)) for route in (full, some, full)]
    z, level_B = torch.randn(3, CHANNELS, SIDE, SIDE), torch.full((3,), 0.7)
    together = predictions(process, branches, z, level_B)
    assert seen.sizes == [6, 3]
    for branch, out in zip(branches, together):
        (alone,) = predictions(process, [branch], z, level_B)
        torch.testing.assert_close(out, alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("guidance", [1, 2, SG, {**SG, "weak": {"rate": "0.6->0"}}])
def test_image_depends_on_its_seed_alone(guidance: Any) -> None:
    """Not on the batch it is generated in, tokens routed at inference included."""
    whole = images(guidance, network(), count=5)
    parts = images(guidance, network(), count=5, batch=2)
    later = images(guidance, network(), count=3, seed=100_002)
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(later, whole[2:], atol=1e-5, rtol=1e-5)


def by_hand(network: Any, z: Tensor, sigma: float, labels: Tensor, *, deep: bool) -> Tensor:
    """EDM's D of SPRINT's network, its second path replaced by the mask token unless `deep`."""
    scale = (sigma**2 + 0.25) ** 0.5
    x = network.x_embedder(z.float() / scale) + network.pos_embed
    c = network.t_embedder(torch.full((len(z),), sigma).log() / 4) + network.y_embedder(labels)
    first, middle, last = network.blocks[:2], network.blocks[2:4], network.blocks[4:]
    for block in first:
        x = block(x, c, None)
    other = x
    if deep:
        for block in middle:
            other = block(other, c, None)
    else:
        other = network.re_enter.mask_token.expand_as(x)
    x = torch.cat([other, x], dim=2) @ network.re_enter.linear.weight.T
    x = x + network.re_enter.linear.bias
    for block in last:
        x = block(x, c, None)
    out = network._unpatchify(network.final_layer(x, c))
    return 0.25 / (sigma**2 + 0.25) * z + sigma * 0.5 / scale * out.double()


@torch.no_grad()
def test_path_drop_guidance_agrees_with_its_formula() -> None:
    """D = D_dropped(null) + w (D(class) - D_dropped(null)); one Euler step from sigma ends at D."""
    tree = {"model": MODEL, "routes": ["2->B-3"], "bypass": "sprint", "precision": "fp32"}
    spec, sigma = decode(RunSpec, tree), 2.0
    network = woken(build_network(spec))
    guidance = {"weight": 3, "weak": {"path": "dropped"}}
    sampler = decode(
        SamplerSpec,
        {"solver": "euler", "steps": 1, "sigma_max": sigma, "guidance": guidance, "seed": 5},
    )
    routes = routes_taken(spec, sampler.guidance)
    found, labels = drawn(network, sampler, 3, shape=(1, 16, 16), routes=routes, tokens=spec.tokens)
    noise = torch.stack([draws.normal((1, 16, 16), "image", seed) for seed in (5, 6, 7)])
    z = sigma * noise.double()
    strong = by_hand(network, z, sigma, labels, deep=True)
    weak = by_hand(network, z, sigma, torch.full_like(labels, 10), deep=False)
    assert torch.allclose(found.double(), weak + 3 * (strong - weak), atol=2e-4)
    assert not torch.allclose(found.double(), strong, atol=1e-2)
