"""Probes of a trained network: held-out loss by noise level, and layer similarity."""

# B batch, M images, L levels, N tokens, D width

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tread_lab import draws
from tread_lab.config.errors import UserError
from tread_lab.config.evaluation import HeldoutSpec, SimilaritySpec
from tread_lab.config.model import ModelSpec
from tread_lab.config.recipe import outputs
from tread_lab.data.source import Samples
from tread_lab.routing.select import Routing, draw_routing
from tread_lab.train.assemble import Trained

T = TypeVar("T")
# Yields how much is done and all there is between two batches, where it may be closed.
Measuring = Generator[tuple[int, int], None, T]
BATCH = 128  # images of one pass
STREAMS = 2**30  # bytes of residual streams that are compared at once, in fp32

# M of all samples, ascending; a set that is sorted by class has the first classes in front.
PICKS: Mapping[str, Callable[[int, Samples], Tensor]] = {
    "first": lambda M, samples: torch.arange(M),
    "even": lambda M, samples: (torch.arange(M) * len(samples) + len(samples) // 2) // M,
}


def check_probe(probe: HeldoutSpec | SimilaritySpec, model: ModelSpec, heldout: Samples) -> None:
    """Refuse a probe of too many images, or the similarity of a single block.

    Raises:
        UserError: names the probe and a remedy.
    """
    if isinstance(probe, SimilaritySpec) and model.depth < 2:
        raise UserError(f"evaluate: {probe.kind} requires two or more blocks. Try removing it.")
    if len(heldout) < probe.images:
        fewest = 1 if isinstance(probe, SimilaritySpec) else 2
        fewer = f"{{{probe.kind}: {{images: {len(heldout)}}}}}"
        raise UserError(
            f"evaluate: {probe.kind} requires {probe.images} held-out images, got {len(heldout)}."
            f" Try {fewer if len(heldout) >= fewest else 'removing it'}."
        )


@dataclass(frozen=True)
class HeldoutLosses:
    """Weighted loss of every image at every level; `routed_ML` is `None` for dense runs.

    Attributes:
        zero: mean loss of predicting zero, at the same levels.
    """

    dense_ML: np.ndarray
    routed_ML: np.ndarray | None
    level_ML: np.ndarray
    zero: float


def heldout_losses(model: Trained, samples: Samples, spec: HeldoutSpec) -> Measuring[HeldoutLosses]:
    """Losses of held-out samples, each once per bin of `levels` equal-probability bins.

    Images, levels, noise and ranking are the same for every run, so losses pair element by element.
    """
    images, levels, ids_M = spec.images, spec.levels, PICKS[spec.pick](spec.images, samples)
    dense_ML, routed_ML, level_ML, zero_ML = (torch.empty(images, levels) for _ in range(4))
    for first in range(0, images, BATCH):
        chunk = slice(first, first + BATCH)
        x_BCHW, y_B = _taken(model, samples, ids_M[chunk])
        for bin in range(levels):
            key = ("heldout", first, bin)
            u_B = (bin + draws.uniform((len(y_B),), *key, "level")) / levels
            level_B = level_ML[chunk, bin] = model.process.level(u_B)
            noise_BCHW = draws.normal(tuple(x_BCHW.shape), *key, "noise")
            routing = draw_routing(model.spec.routes, (len(y_B), model.spec.tokens), *key)
            draw = (x_BCHW, noise_BCHW, level_B, y_B)
            zero_ML[chunk, bin] = _zero_loss(model, *draw[:3])
            dense_ML[chunk, bin] = _loss(model, *draw, None)
            if routing:
                routed_ML[chunk, bin] = _loss(model, *draw, routing)
            yield first * levels + (bin + 1) * len(y_B), images * levels
    routed = routed_ML.numpy() if model.spec.routes else None
    return HeldoutLosses(dense_ML.numpy(), routed, level_ML.numpy(), float(zero_ML.mean()))


def _zero_loss(model: Trained, x: Tensor, noise: Tensor, level_B: Tensor) -> Tensor:
    """Return the loss of a network that gives zeros, however it is preconditioned."""
    channels = outputs(model.spec.process)

    def network(z_BCHW: Tensor, t_B: Tensor) -> Tensor:
        return torch.zeros_like(z_BCHW).repeat(1, channels, 1, 1)

    return model.process.loss_terms(network, x, noise, level_B).loss()


def _taken(model: Trained, samples: Samples, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return samples and their labels, or what the network sees in place of them: of a run of which
    no step saw any, the null class.

    Raises:
        UserError: a sample is not finite, so that no loss would be a number.
    """
    x_BCHW, y_B = samples.take(ids)
    finite_B = x_BCHW.isfinite().flatten(1).all(dim=1)
    if not finite_B.all():
        wrong = int(ids[~finite_B][0])
        raise UserError(
            f"data: held-out sample {wrong} must be finite. Try encoding the data again."
        )
    labelled = model.spec.may_know("class")
    if model.condition is None:
        return x_BCHW, y_B if labelled else torch.full_like(y_B, model.spec.data.classes)
    rows = ids if labelled else torch.full_like(ids, len(model.condition))
    return x_BCHW, model.condition.of(rows)


@torch.no_grad()
def _loss(
    model: Trained, x: Tensor, noise: Tensor, level_B: Tensor, y_B: Tensor, routing: Routing | None
) -> Tensor:
    device = model.device
    y_B, routes = y_B.to(device), tuple(route.to(device) for route in routing or ()) or None

    def network(z_BCHW: Tensor, t_B: Tensor) -> Tensor:
        return model.network(z_BCHW, t_B, y_B, routes)

    on_device = (t.to(device) for t in (x, noise, level_B))
    return model.process.loss_terms(network, *on_device).loss().cpu()


@torch.no_grad()
def layer_similarity(
    model: Trained, samples: Samples, spec: SimilaritySpec
) -> Measuring[tuple[np.ndarray, np.ndarray]]:
    """S_ab = mean over images and tokens of cos(h_a, h_b), h_l the residual stream after block l.

    Dense forward at `levels` stratified noise levels (mid-quantiles), fixed noise, fp32 sums
    (TREAD, Fig. 4; the set of levels is ours). Memory does not grow with the number of images.

    Returns:
        similarity per level [L, B, B] and the levels [L]; B is the depth here.
    """
    images = spec.images
    x_BCHW, y_B = _taken(model, samples, PICKS[spec.pick](images, samples))
    u_L = (torch.arange(spec.levels) + 0.5) / spec.levels
    level_L = model.process.level(u_L)
    each = 4 * model.spec.model.depth * model.spec.tokens * model.spec.model.width
    at_once = max(STREAMS // each, 1)  # 32 images of XL
    matrices = []
    for k, level in enumerate(level_L):
        noise_BCHW = draws.normal(tuple(x_BCHW.shape), "similarity", k)
        draw = (x_BCHW, noise_BCHW, level.expand(images), y_B)
        streams = (_streams(model, *part) for part in zip(*(t.split(at_once) for t in draw)))
        sums = [torch.einsum("amd,bmd->ab", h, h) for h in streams]
        matrices.append(sum(sums[1:], sums[0]) / (images * model.spec.tokens))
        yield k + 1, spec.levels
    return torch.stack(matrices).cpu().numpy(), level_L.numpy()


def _streams(model: Trained, x: Tensor, noise: Tensor, level_B: Tensor, y_B: Tensor) -> Tensor:
    """Unit vectors of every token after every block, [depth, images * N, D]."""
    device, streams = model.device, []

    def network(z_BCHW: Tensor, t_B: Tensor) -> Tensor:
        def observe(l: int, h_BND: Tensor) -> None:
            streams.append(F.normalize(h_BND.float(), dim=2).flatten(0, 1))

        return model.network(z_BCHW, t_B, y_B.to(device), None, observe)

    z_BCHW = model.process.noisy(x, noise, level_B).to(device)
    model.process.predict(network, z_BCHW, level_B.to(device))
    return torch.stack(streams)
