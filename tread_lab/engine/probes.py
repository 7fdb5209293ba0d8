"""Probes of a trained network: held-out loss by noise level, and layer similarity."""

# B batch, M images, L levels, N tokens, D width

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tread_lab import draws
from tread_lab.data.source import Samples
from tread_lab.engine.assemble import Trained
from tread_lab.routing.select import Routing, draw_routing
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import HeldoutSpec, SimilaritySpec
from tread_lab.specs.model import ModelSpec
from tread_lab.specs.run import RunSpec

T = TypeVar("T")
Measuring = Generator[None, None, T]  # yields between two batches, where it may be closed
BATCH = 128  # images of one pass
STREAMS = 2**30  # bytes of residual streams that are compared at once, in fp32

# M of all samples, ascending; a set that is sorted by class has the first classes in front.
PICKS: Mapping[str, Callable[[int, Samples], Tensor]] = {
    "first": lambda M, samples: torch.arange(M),
    "even": lambda M, samples: (torch.arange(M) * len(samples) + len(samples) // 2) // M,
}


def check_probe(probe: HeldoutSpec | SimilaritySpec, model: ModelSpec, heldout: Samples) -> None:
    """Refuse a probe of more images than are held out, or of the similarity of a single block.

    Raises:
        UserError: says which, and what to write. An export, which holds no sample, says so itself.
    """
    if isinstance(probe, SimilaritySpec) and model.depth < 2:
        raise UserError(
            f"evaluate: {probe.kind} compares blocks, and the network has one; leave it out"
        )
    if 0 < len(heldout) < probe.images:
        fewest = 1 if isinstance(probe, SimilaritySpec) else 2
        fewer = f"write {{{probe.kind}: {{images: {len(heldout)}}}}}"
        raise UserError(
            f"evaluate: {probe.kind} of {probe.images} images, and the data hold out"
            f" {len(heldout)}; {fewer if len(heldout) >= fewest else 'leave it out'}"
        )


def finished(steps: Measuring[T]) -> T:
    """Return what a measuring returns, without a break."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


@dataclass(frozen=True)
class HeldoutLosses:
    """Weighted loss of every image at every level; `routed_ML` is `None` for dense runs."""

    dense_ML: np.ndarray
    routed_ML: np.ndarray | None
    level_ML: np.ndarray


def heldout_losses(
    model: Trained, samples: Samples, images: int, levels: int, *, pick: str = "first"
) -> Measuring[HeldoutLosses]:
    """Losses of `images` held-out samples, each once in every of `levels` equal-probability bins.

    Images, levels, noise and ranking are the same for every run, so losses pair element by element.

    Args:
        pick: which images, of `PICKS`.
    """
    columns = []
    for column in _heldout(model, samples, PICKS[pick](images, samples), levels):
        columns.append(column)
        yield
    chunks = [zip(*columns[k : k + levels]) for k in range(0, len(columns), levels)]
    stacked = ([torch.stack(part, dim=1) for part in chunk] for chunk in chunks)
    dense, routed, level = map(torch.cat, zip(*stacked))
    routed_ML = routed.numpy() if model.spec.routes else None
    return HeldoutLosses(dense.numpy(), routed_ML, level.numpy())


def _heldout(
    model: Trained, samples: Samples, ids_M: Tensor, levels: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """(dense_B, routed_B, level_B) of one chunk of images after another, at each level."""
    for first in range(0, len(ids_M), BATCH):
        ids = ids_M[first : first + BATCH]
        x_BCHW, y_B = _taken(model, samples, ids)
        for bin in range(levels):
            key = ("heldout", first, bin)
            u_B = (bin + draws.uniform((len(ids),), *key, "level")) / levels
            level_B = model.process.level(u_B)
            noise_BCHW = draws.normal(tuple(x_BCHW.shape), *key, "noise")
            routing = draw_routing(model.spec.routes, (len(ids), model.spec.tokens), *key)
            draw = (x_BCHW, noise_BCHW, level_B, y_B)
            dense_B = _loss(model, *draw, None)
            yield dense_B, _loss(model, *draw, routing) if routing else dense_B, level_B


def _taken(model: Trained, samples: Samples, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return samples and their labels, or what the network sees in place of them.

    Raises:
        UserError: a sample is not finite, so that no loss would be a number.
    """
    x_BCHW, y_B = samples.take(ids)
    finite_B = x_BCHW.isfinite().flatten(1).all(dim=1)
    if not finite_B.all():
        wrong = int(ids[~finite_B][0])
        raise UserError(f"data: held-out sample {wrong} is not finite; make the data again")
    return x_BCHW, y_B if model.condition is None else model.condition.of(ids)


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
    model: Trained, samples: Samples, images: int, levels: int, *, pick: str = "first"
) -> Measuring[tuple[np.ndarray, np.ndarray]]:
    """S_ab = mean over images and tokens of cos(h_a, h_b), h_l the residual stream after block l.

    Dense forward at `levels` stratified noise levels (mid-quantiles), fixed noise, fp32 sums
    (TREAD, Fig. 4; the set of levels is ours). Memory does not grow with the number of images.

    Returns:
        similarity per level [L, B, B] and the levels [L]; B is the depth here.
    """
    x_BCHW, y_B = _taken(model, samples, PICKS[pick](images, samples))
    u_L = (torch.arange(levels) + 0.5) / levels
    level_L = model.process.level(u_L)
    matrices = []
    for k, level in enumerate(level_L):
        noise_BCHW = draws.normal(tuple(x_BCHW.shape), "similarity", k)
        draw = (x_BCHW, noise_BCHW, level.expand(images), y_B)
        parts = zip(*(tensor.split(_images_at_once(model.spec)) for tensor in draw))
        sums = [_cosines(_streams(model, *part)) for part in parts]
        matrices.append(sum(sums[1:], sums[0]) / (images * model.spec.tokens))
        yield
    return torch.stack(matrices).cpu().numpy(), level_L.numpy()


def _images_at_once(spec: RunSpec) -> int:
    """Return how many images have residual streams of `STREAMS` bytes; of XL 32."""
    each = 4 * spec.model.depth * spec.tokens * spec.model.width
    return max(STREAMS // each, 1)


def _cosines(streams: Tensor) -> Tensor:
    """Sums over tokens of the products of unit vectors of all pairs of blocks."""
    return torch.einsum("amd,bmd->ab", streams, streams)


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
