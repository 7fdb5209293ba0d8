"""Images from seeds: image i depends on its own seed alone."""

# B batch, N tokens, K kept tokens, C channels, H height, W width

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tread_lab import draws
from tread_lab.config.errors import lookup
from tread_lab.config.evaluation import SamplerSpec
from tread_lab.config.routes import RouteSpec
from tread_lab.diffusion.guided import Branch, Denoiser, Term, acting, guided
from tread_lab.diffusion.process import Process
from tread_lab.diffusion.solvers import SOLVERS
from tread_lab.routing.select import BatchRoute, Routing, select

# Images of one network call by type of device. Smaller calls stay in a core's cache, larger ones
# fill a GPU; on a CPU in fp32 the images are bitwise the same.
IMAGES_A_CALL = {"cpu": 64, "cuda": 256}


def images_a_call(device_type: str) -> int:
    """Return the default batch of a sampler on a device type."""
    return IMAGES_A_CALL.get(device_type, IMAGES_A_CALL["cpu"])


def generate(
    networks: Mapping[int | None, Denoiser],
    process: Process,
    sampler: SamplerSpec,
    *,
    count: int,
    shape: tuple[int, int, int],
    classes: int,
    device: torch.device,
    routes: Sequence[RouteSpec] = (),
    tokens: int = 0,
    condition: Callable[[Tensor], Tensor] = lambda labels_B: labels_B,
    batch: int | None = None,
    start: int = 0,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of (samples_BCHW fp32 in model space, labels_B), images `start` to `count`.

    Solvers work in float64 as in EDM's code, the network in fp32. Noise added by a solver is seeded
    by image and step.

    Args:
        networks: raw networks by the step of their checkpoint, `None` being the last; called as
            network(x, t, y, routing).
        shape: (C, H, W) of one sample.
        classes: number of classes; this number itself is the null class.
        batch: images per network call; `None` selects a default for the device.
        routes: for guidance branches with a selection rate or a dropped deep path.
        tokens: tokens per sample (N).
        condition: maps labels, null class included, to the network's input, e.g. text tokens.
    """
    batch = batch or images_a_call(device.type)
    label = lookup(LABELS, sampler.labels, "sampler.labels")
    solve, levels = lookup(SOLVERS, sampler.solver, "solver"), process.grid(sampler)
    for first in range(start, count, batch):
        seeds = range(sampler.seed + first, sampler.seed + min(first + batch, count))
        labels = [label(sampler.seed, seed, classes) for seed in seeds]
        labels_B = _sent(torch.tensor(labels), device)
        noise_BCHW = torch.stack([draws.normal(shape, "image", seed) for seed in seeds])
        null_B = torch.full_like(labels_B, classes)
        seen = {"class": condition(labels_B), "none": condition(null_B)}
        images = ImageRoutes(routes, tokens, seeds, device)
        noise = functools.partial(_step_noise, shape, seeds, device)
        field = _Field(process, sampler, levels, networks, seen, images, noise)
        with torch.no_grad():
            top = process.prior(_sent(noise_BCHW, device).double(), levels[0].to(device))
            samples_BCHW = solve(field, top, levels).float()
        yield samples_BCHW, labels_B


def _step_noise(
    shape: tuple[int, int, int], seeds: Sequence[int], device: torch.device, step: int
) -> Tensor:
    parts = [draws.normal(shape, "image", seed, "step", step) for seed in seeds]
    return _sent(torch.stack(parts), device).double()


def _sent(x: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; a copy to a GPU waits for no work that it has."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


class ImageRoutes:
    """Routings of a batch of images at any rate, drawn anew at every noise level as in training.

    Tokens are ranked by the image's seed, equally in both branches, so the weak branch routes a
    superset of the strong branch's tokens.
    """

    def __init__(
        self, routes: Sequence[RouteSpec], tokens: int, seeds: Sequence[int], device: torch.device
    ) -> None:
        self.routes, self.tokens, self.seeds, self.device = routes, tokens, seeds, device
        self._ranked: tuple[int, list[Tensor]] = (-1, [])

    def dropped(self) -> Routing:
        """Return the routing that keeps no token, so that no routed block runs (path-drop)."""
        keep_B0 = torch.empty(len(self.seeds), 0, dtype=torch.long, device=self.device)
        return tuple(BatchRoute(r.blocks[0], r.blocks[-1], keep_B0) for r in self.routes)

    def routing(self, rate: float, index: int) -> Routing | None:
        """Return the routing at `rate` for noise level `index`; `None` if no token is routed."""
        routes = [replace(route, rate=rate) for route in self.routes]
        if not any(route.routed(self.tokens) for route in routes):
            return None
        return tuple(select(r, rank).to(self.device) for r, rank in zip(routes, self._ranks(index)))

    def _ranks(self, index: int) -> list[Tensor]:
        """One ranking per route, kept for the other branch and the solver's second call."""
        if self._ranked[0] != index:
            self._ranked = (index, [self._rank_BN(k, index) for k in range(len(self.routes))])
        return self._ranked[1]

    def _rank_BN(self, route: int, index: int) -> Tensor:
        shape, key = (self.tokens,), ("route", route, index)
        return torch.stack([draws.uniform(shape, "image", seed, *key) for seed in self.seeds])


@dataclass(frozen=True)
class _Field:
    """A process under its guided prediction for one batch of images, as solvers follow it.

    Attributes:
        labels: what the network sees of `class` and of `none`.
        noise: that of a step.
    """

    process: Process
    sampler: SamplerSpec
    levels: Tensor
    networks: Mapping[int | None, Denoiser]
    labels: Mapping[str, Tensor]
    images: ImageRoutes
    noise: Callable[[int], Tensor]

    def __call__(self, z_BCHW: Tensor, level: Tensor) -> Tensor:
        return self.process.velocity(self._prediction(z_BCHW, level), z_BCHW, level)

    def reverse(self, z_BCHW: Tensor, now: Tensor, then: Tensor) -> tuple[Tensor, Tensor]:
        return self.process.reverse(self._prediction(z_BCHW, now), z_BCHW, now, then)

    def _prediction(self, z_BCHW: Tensor, level: Tensor) -> Tensor:
        index = place(self.levels, float(level))
        share = progress(index, self.sampler.steps)
        terms = acting(self.sampler.guidance, float(level), share)
        return guided(self.process, [self._live(term, index) for term in terms], z_BCHW, level)

    def _live(self, term: Term, index: int) -> Branch:
        branch, images = term.branch, self.images
        dropped = branch.path == "dropped"
        routing = images.dropped() if dropped else images.routing(term.rate, index)
        network, labels_B = self.networks[branch.step], self.labels[branch.label or "class"]
        return Branch(term.weights, network, labels_B, routing)


def place(levels: Tensor, level: float) -> int:
    """Return the index of a level in its descending grid; between two levels, of the lower one."""
    return int((levels > level).sum())


def progress(index: int, steps: int) -> float:
    """Return the sampling progress at level `index`: 0 at first, 1 at the start of the last step
    (and at its end, for solvers that evaluate there)."""
    return min(index / max(steps - 1, 1), 1.0)


def _uniform(first_seed: int, seed: int, classes: int) -> int:
    return int(torch.randint(classes, (1,), generator=draws.generator("label", seed)))


# The label of an image from the seed of the first image, its own seed, and the number of classes.
LABELS: dict[str, Callable[[int, int, int], int]] = {
    "uniform": _uniform,
    "balanced": lambda first_seed, seed, classes: (seed - first_seed) % classes,
}
