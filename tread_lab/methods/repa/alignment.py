"""REPA while training: a block's tokens, projected, are drawn towards a frozen encoder's."""

# B batch, N tokens, n tokens that ran the block, D width, E width of the features

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tread_lab.config.run import RunSpec
from tread_lab.data.feature_cache import FeatureCache
from tread_lab.data.source import Samples
from tread_lab.methods.repa.encoder import (
    Encoder,
    check_encoder,
    encoder_digest,
    open_encoder,
    target_images,
)
from tread_lab.methods.repa.spec import PREPROCESSING, RepaSpec
from tread_lab.routing.rejoin import gather_tokens
from tread_lab.routing.select import Routing
from tread_lab.train.assemble import initialised
from tread_lab.train.joining import ForwardPass, Joining, Part


class Projector(nn.Sequential):
    """Three linear maps with SiLU between, Xavier weights and zero biases (Yu et al. 2025)."""

    def __init__(self, width: int, hidden: int, features: int) -> None:
        super().__init__(
            nn.Linear(width, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, features),
        )
        for linear in (m for m in self if isinstance(m, nn.Linear)):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)


class GridProjector(nn.Conv2d):
    """One 3 x 3 convolution over the grid of all tokens (iREPA, Singh et al. 2025)."""

    def __init__(self, width: int, features: int) -> None:
        super().__init__(width, features, 3, padding=1)

    def forward(self, h_BND: Tensor) -> Tensor:
        """[B, N, D] -> [B, N, E]"""
        B, N, D = h_BND.shape
        side = math.isqrt(N)
        return super().forward(h_BND.mT.reshape(B, D, side, side)).flatten(2).mT


class Aligned(Part):
    """REPA in the training of one run; the projector is trained but not sampled."""

    observes = True

    def __init__(self, run: Joining) -> None:
        self.run, self.spec = run, RepaSpec.of(run.spec)
        self.samples, self.side = run.batches.samples, run.spec.data.size // run.spec.model.patch
        self.projector = fresh_projector(run.spec).to(run.device)
        super().__init__({"projector": self.projector})
        self.encoder = cache(self._opened)  # with its first use: a cache of features needs none

    def _opened(self) -> Encoder:
        return open_encoder(self.spec, self.samples, self.run.device, side=self.side)

    def prepare(self) -> Iterator[int]:
        """Encode the images of latents; embedded images are encoded per batch, which is faster than
        reading features."""
        check_encoder(self.spec, self.samples)
        if not self.run.spec.data.holds.latents:
            return
        features = feature_cache(
            self.run.folder.cache,
            self.spec,
            self.samples,
            side=self.side,
            encoder=encoder_digest(self.spec),
        )
        if not features.complete:
            encode, decided_by = self._opened(), (self.spec, self.samples)
            yield from features.fill(
                lambda ids_B: encode(target_images(*decided_by, ids_B, self.run.device))
            )
        self.run.batches.targets = features.features

    def loss(self, loss_B: Tensor, done: ForwardPass) -> Tensor:
        batch, target_BNE = done.batch, done.batch.target_BNE
        if target_BNE is None:
            with torch.no_grad():
                target_BNE = self.encoder()(self.samples.pixels(batch.x_BCHW))
        return loss_B + alignment_loss(
            self.spec, self.projector, done.streams, target_BNE, batch.routing
        )


def alignment_loss(
    spec: RepaSpec,
    projector: nn.Module,
    streams: Mapping[int, Tensor],
    target_BnE: Tensor,
    routing: Routing | None,
) -> Tensor:
    """loss_B = - weight * mean over tokens of cos(projector(h), f).

    Args:
        streams: the residual stream after each block.
        target_BnE: features f of the clean samples, of all tokens.
    """
    assert isinstance(spec.block, int)
    h_BnD, real_Bn = streams[spec.block], None
    if spec.spatial_norm is not None:
        target_BnE = spatially_normalised(target_BnE.float(), spec.spatial_norm)
    on_grid = isinstance(projector, GridProjector)
    if on_grid:
        h_BnD = projector(h_BnD)
    for route in routing or ():
        if route.start <= spec.block <= route.end:
            target_BnE = gather_tokens(target_BnE, route.keep_BK)
            if h_BnD.shape[1] > target_BnE.shape[1]:  # the route has just ended
                h_BnD = gather_tokens(h_BnD, route.keep_BK)
            real_Bn = route.real_BK
    found_BnE = h_BnD if on_grid else projector(h_BnD)
    cosine_Bn = F.cosine_similarity(found_BnE.float(), target_BnE.float(), dim=2)
    share_Bn = torch.ones_like(cosine_Bn) if real_Bn is None else real_Bn.float()
    return -spec.weight * (share_Bn * cosine_Bn).sum(dim=1) / share_Bn.sum(dim=1)


def spatially_normalised(features_BNE: Tensor, share: float) -> Tensor:
    """Return features minus a share of their token mean, divided by their deviation (iREPA)."""
    deviation_B1E, mean_B1E = torch.std_mean(features_BNE, dim=1, keepdim=True)
    return (features_BNE - share * mean_B1E) / (deviation_B1E + 1e-6)


def fresh_projector(spec: RunSpec) -> Projector | GridProjector:
    """Return the projector of a run, initialised from the run's seed."""
    repa = RepaSpec.of(spec)
    with initialised(spec.seed, "projector"):
        if repa.projector == "conv":
            return GridProjector(spec.model.width, repa.features)
        return Projector(spec.model.width, repa.hidden, repa.features)


def feature_cache(
    folder: Path, spec: RepaSpec, samples: Samples, *, side: int, encoder: str
) -> FeatureCache:
    """Return the cache of a run's features, filled or not.

    Args:
        folder: folder of a lab's caches.
        side: tokens along one side of a sample.
        encoder: digest of the encoder's weights.
    """
    fingerprint: dict[str, object] = {
        "data": samples.fingerprint,
        "target": spec.target,
        "images": _images(spec, samples),
        "encoder": [spec.encoder, encoder],
        "preprocessing": PREPROCESSING,
    }
    shape = (len(samples), side * side, spec.features)
    return FeatureCache(folder, shape, fingerprint, kind="repa")


def _images(spec: RepaSpec, samples: Samples) -> str:
    """Return what the images are: the decoder's digest, or that of some of the stored ones."""
    if spec.target == "decoded":
        return samples.decoder
    sampled = samples.images(torch.linspace(0, len(samples) - 1, min(64, len(samples))).long())
    assert sampled is not None  # check_encoder has refused
    return hashlib.sha256(sampled.contiguous().numpy().tobytes()).hexdigest()[:16]
