"""Images from seeds: image i depends on its own seed alone."""

# B batch, C channels, H height, W width

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tread_lab import draws
from tread_lab.diffusion.process import Process
from tread_lab.sampling.guidance import Denoiser, branches, guided
from tread_lab.sampling.solvers import SOLVERS
from tread_lab.spec.evaluation import SamplerSpec


def generate(
    network: Denoiser,
    process: Process,
    sampler: SamplerSpec,
    *,
    count: int,
    shape: tuple[int, int, int],
    classes: int,
    device: torch.device,
    batch: int = 256,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of (samples_BCHW fp32 in model space, labels_B), `count` images in all.

    The ODE is integrated in float64 as in EDM's code; the network sees fp32.

    Args:
        network: raw network, called as network(x, t, y, plan).
        shape: (C, H, W) of one sample.
        classes: number of classes; this number itself is the null class.
    """
    levels = process.grid(sampler).to(device)
    for first in range(0, count, batch):
        seeds = range(sampler.seed + first, sampler.seed + min(first + batch, count))
        noise_BCHW = torch.stack([draws.normal(shape, "image", seed) for seed in seeds])
        labels_B = torch.tensor([_label(sampler, seed, classes) for seed in seeds])
        yield _sample(network, process, sampler, levels, noise_BCHW, labels_B, classes)


@torch.no_grad()
def _sample(
    network: Denoiser,
    process: Process,
    sampler: SamplerSpec,
    levels: Tensor,
    noise_BCHW: Tensor,
    labels_B: Tensor,
    null: int,
) -> tuple[Tensor, Tensor]:
    noise_BCHW = noise_BCHW.to(levels.device).double()
    labels_B = labels_B.to(levels.device)
    terms = branches(sampler.guidance, network, labels_B, null)
    prediction = guided(process, terms, sampler.guidance.interval)

    def velocity(z_BCHW: Tensor, level: Tensor) -> Tensor:
        return process.velocity(prediction(z_BCHW, level), z_BCHW, level)

    start = process.noisy(torch.zeros_like(noise_BCHW), noise_BCHW, levels[:1])
    z_BCHW = SOLVERS[sampler.solver](velocity, start, levels)
    return z_BCHW.float(), labels_B


def _label(sampler: SamplerSpec, seed: int, classes: int) -> int:
    if sampler.labels == "balanced":
        return (seed - sampler.seed) % classes
    return int(torch.randint(classes, (1,), generator=draws.generator("label", seed)))
