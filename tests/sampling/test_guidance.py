"""Guidance is one weighted sum: special cases collapse, branches see what the spec says they do."""

# B batch, C channels, H height, W width, N tokens

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tread_lab.diffusion import build_process
from tread_lab.engine.assemble import build_network
from tread_lab.routing.select import Routing
from tread_lab.sampling.generate import generate
from tread_lab.sampling.guidance import Branch, Denoiser, acting, guided, predictions
from tread_lab.specs import DDPMSpec, EDMSpec, FlowSpec, GuidanceSpec, RunSpec, SamplerSpec, decode
from tread_lab.specs.guidance import routes_taken

CLASSES, CHANNELS, SIDE = 10, 4, 8
RUN = decode(
    RunSpec,
    {
        "model": {
            "depth": 4,
            "width": 16,
            "heads": 2,
            "patch": 2,
            "init": "official_code",
        },
        "data": {"channels": CHANNELS, "size": SIDE, "classes": CLASSES},
        "routes": ["1->2"],
    },
)
SG = {"weight": 1.5, "strong": {"rate": 0.25}, "weak": {"rate": 0.75}}
PROCESSES = pytest.mark.parametrize("process", [EDMSpec(), FlowSpec()], ids=["edm", "flow"])


def network(seed: int = 0) -> Denoiser:
    torch.manual_seed(seed)
    built = build_network(RUN).requires_grad_(False)
    return lambda x, t, y, routing: built(x, t, y, routing)


@dataclass
class Watched:
    """A network that notes what it is called with."""

    inner: Denoiser
    labels: list[Tensor] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def __call__(self, x: Tensor, t: Tensor, y: Tensor, routing: Routing | None) -> Tensor:
        self.labels.append(y)
        self.sizes.append(len(x))
        self.tokens.append(routing[0].keep_BK.shape[1] if routing else RUN.tokens)
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
    batches = generate(
        dict(zip(steps, networks)),
        build_process(process or EDMSpec()),
        spec,
        count=count,
        shape=(CHANNELS, SIDE, SIDE),
        classes=CLASSES,
        device=torch.device("cpu"),
        routes=routes_taken(RUN, spec.guidance),
        tokens=RUN.tokens,
        batch=batch,
    )
    return torch.cat([x for x, _ in batches])


@PROCESSES
def test_weight_one_is_no_guidance_and_one_call(process: EDMSpec | FlowSpec) -> None:
    plain, one = Watched(network()), Watched(network())
    sparse = {"weight": 1.0, "weak": {"rate": 0.9, "step": 7}, "interval": [0.1, 1]}
    expected = images(1, plain, process=process)
    assert torch.equal(images(sparse, one, network(1), process=process), expected)
    assert one.sizes == plain.sizes == [5] * 7  # Heun: 2 steps - 1


@PROCESSES
def test_equal_branches_are_either_branch(process: EDMSpec | FlowSpec) -> None:
    for rate in (0.0, 0.5):
        alone = {"weight": 1, "strong": {"rate": rate}}
        both = {"weight": 3.0, "strong": {"rate": rate}, "weak": {"rate": rate, "label": "class"}}
        torch.testing.assert_close(
            images(both, network(), process=process),
            images(alone, network(), process=process),
            atol=1e-5,
            rtol=1e-5,
        )


def test_three_guided_channels_leave_the_fourth_conditional() -> None:
    process, net, w = build_process(FlowSpec()), network(), 3.0
    z, level = torch.randn(2, CHANNELS, SIDE, SIDE), torch.tensor(0.5)
    y, null = torch.tensor([1, 2]), torch.full((2,), CLASSES)

    def summed(*rests: float | None) -> Tensor:
        terms = [Branch(w, net, y, rest=rests[0]), Branch(1 - w, net, null, rest=rests[1])]
        return guided(process, lambda _: terms)(z, level)

    first3, everywhere = summed(1.0, 0.0), summed(None, None)
    conditional = guided(process, lambda _: [Branch(1.0, net, y)])(z, level)
    torch.testing.assert_close(first3[:, :3], everywhere[:, :3])
    torch.testing.assert_close(first3[:, 3:], conditional[:, 3:], atol=1e-5, rtol=1e-5)
    assert (everywhere[:, 3:] - conditional[:, 3:]).abs().max() > 1e-3


def test_sparse_guidance_is_conditional_in_both_branches() -> None:
    """The published code drops the class in both; here no call ever sees the null class."""
    seen = Watched(network())
    images(SG, seen)
    assert all((labels < CLASSES).all() for labels in seen.labels)
    assert set(seen.tokens) == {12, 4}  # 16 tokens at .25 and .75
    assert len(seen.labels) == 2 * 7
    assert all(torch.equal(labels, seen.labels[0]) for labels in seen.labels)


def test_cfg_with_sparse_guidance_drops_the_class_in_the_weak_branch_alone() -> None:
    seen = Watched(network())
    images({**SG, "weak": {"rate": 0.75, "label": "none"}}, seen)
    for labels, tokens in zip(seen.labels, seen.tokens):
        assert ((labels == CLASSES) == (tokens == 4)).all()


def test_rates_follow_their_schedules() -> None:
    seen = Watched(network())
    schedule = {"weight": 2, "strong": {"rate": "0->0.75"}, "weak": {"rate": "0.75->0"}}
    images(schedule, seen, solver="euler", steps=3)
    # rates 0, .375, .75 and back; in the middle both route 6 of 16 tokens and share one call
    assert seen.tokens == [16, 4, 10, 4, 16]
    assert seen.sizes == [5, 5, 10, 5, 5]


@PROCESSES
def test_guidance_acts_within_its_interval_alone(process: EDMSpec | FlowSpec) -> None:
    levels = build_process(process).grid(SamplerSpec(steps=4, sigma_max=10, solver="euler"))
    inside = [float(levels[2]), float(levels[1])]
    seen = Watched(network())
    gated = images({"weight": 3, "interval": inside}, seen, process=process, solver="euler")
    assert seen.sizes == [5, 10, 10, 5]
    everywhere = {"weight": 3, "interval": [0, 100]}
    whole = images(everywhere, network(), process=process, solver="euler")
    assert torch.equal(whole, images(3, network(), process=process, solver="euler"))
    nowhere = {"weight": 3, "interval": [50, 100]}
    plain = images(1, network(), process=process, solver="euler")
    assert torch.equal(images(nowhere, network(), process=process, solver="euler"), plain)
    assert not torch.equal(gated, whole) and not torch.equal(gated, plain)


@pytest.mark.parametrize(
    ("labels", "rates", "calls"),
    [((1, CLASSES), (None, None), 1), ((1, 1), (0.5, 0.5), 1), ((1, CLASSES), (0.25, 0.75), 2)],
)
def test_one_batched_pass_equals_one_pass_a_branch(
    labels: tuple[int, int], rates: tuple[float | None, ...], calls: int
) -> None:
    process = build_process(EDMSpec())
    z, level_B = torch.randn(3, CHANNELS, SIDE, SIDE), torch.full((3,), 0.7)
    seen = Watched(network())
    branches = [
        Branch(1.0, seen, torch.full((3,), label), None if rate is None else routing_at(rate, k))
        for k, (label, rate) in enumerate(zip(labels, rates))
    ]
    together = predictions(process, branches, z, level_B)
    assert len(seen.sizes) == calls
    for branch, out in zip(branches, together):
        (alone,) = predictions(process, [branch], z, level_B)
        torch.testing.assert_close(out, alone, atol=1e-6, rtol=1e-5)


def routing_at(rate: float, seed: int) -> Routing:
    from tread_lab.sampling.image_routes import ImageRoutes

    cpu = torch.device("cpu")
    routing = ImageRoutes(RUN.routes, RUN.tokens, range(seed, seed + 3), cpu).routing(rate, 0)
    assert routing is not None
    return routing


@pytest.mark.parametrize("guidance", [1, 2, SG, {**SG, "weak": {"rate": "0.6->0"}}])
def test_an_image_depends_on_its_own_seed_alone(guidance: Any) -> None:
    """Not on the batch it is generated in, tokens routed at inference included."""
    whole = images(guidance, network(), count=5)
    parts = images(guidance, network(), count=5, batch=2)
    later = images(guidance, network(), count=3, seed=100_002)
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(later, whole[2:], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("channels", ["all", "first3"])
def test_a_learned_variance_is_the_strong_branchs(channels: str) -> None:
    z, level = torch.randn(2, CHANNELS, SIDE, SIDE), torch.tensor(1.0)
    y, null = torch.tensor([1, 2]), torch.full((2,), CLASSES)

    def net(x: Tensor, t: Tensor, y: Tensor, routing: Routing | None) -> Tensor:
        return torch.cat([x, x], dim=1) + y[:, None, None, None]

    spec = decode(GuidanceSpec, {"weight": 3.0, "channels": channels})
    labels = {"class": y, "none": null}
    branches = [
        Branch(term.weight, net, labels[str(term.branch.label)], None, term.rest, term.variance)
        for term in acting(spec, 1.0, 0.0)
    ]
    found = guided(build_process(DDPMSpec()), lambda _: branches)(z, level)
    x = z / 2**0.5
    guided_shift = 3.0 * y - 2.0 * null
    free = 4 if channels == "all" else 3
    for c in range(2 * CHANNELS):
        expected = x[:, c % CHANNELS] + (guided_shift if c < free else y)[:, None, None]
        torch.testing.assert_close(found[:, c], expected, atol=1e-4, rtol=1e-4)


class Copies(TorchDispatchMode):
    """Counts the numbers that the host makes for the device `meta`, which stands for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = [t for t in args if isinstance(t, Tensor)]
        hosts = [t for t in tensors if t.device.type == "cpu"]
        copied = bool(hosts) and len(hosts) == len(tensors)
        copied |= func is torch.ops.aten.lift_fresh.default  # `torch.tensor` of a list
        self.count += copied and str(getattr(out, "device", "")) == "meta"
        return out


@pytest.mark.parametrize("channels", ["first3", "all"])
def test_the_host_copies_no_number_to_the_device_for_every_call(channels: str) -> None:
    spec = decode(GuidanceSpec, {**SG, "channels": channels})
    z_BCHW = torch.empty(2, CHANNELS, SIDE, SIDE, device="meta", dtype=torch.float64)
    labels_B = torch.empty(2, device="meta", dtype=torch.long)
    prediction = guided(
        build_process(EDMSpec()),
        lambda level: [
            Branch(t.weight, lambda x, t, y, routing: x, labels_B, None, t.rest, t.variance)
            for t in acting(spec, level, 0.5)
        ],
    )
    levels = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
    prediction(z_BCHW, levels[0])
    with Copies() as copies:
        for level in levels[1:]:
            prediction(z_BCHW, level)
    assert copies.count == 0


@PROCESSES
def test_an_earlier_checkpoint_equal_to_the_last_changes_nothing(
    process: EDMSpec | FlowSpec,
) -> None:
    auto = images({"weight": 2, "weak": {"step": 7}}, network(), network(), process=process)
    torch.testing.assert_close(auto, images(1, network(), process=process), atol=1e-5, rtol=1e-5)
    other = images({"weight": 2, "weak": {"step": 7}}, network(), network(1), process=process)
    assert (other - auto).abs().max() > 1e-3
