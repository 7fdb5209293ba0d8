"""The features that REPA aligns with: encoded as they come, or from a cache of the lab."""

# B batch, N tokens, E width of the features

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from tread_lab.data.source import Samples
from tread_lab.engine.assemble import initialised
from tread_lab.engine.features import FeatureCache
from tread_lab.engine.system import ForwardPass, Joining, Part
from tread_lab.specs.run import RunSpec
from tread_lab.systems.repa.alignment import Alignment, Projector
from tread_lab.systems.repa.encoder import (
    check_encoder,
    encoder_digest,
    open_encoder,
    open_feature_encoder,
)
from tread_lab.systems.repa.spec import PREPROCESSING, RepaSpec


class Aligned(Part):
    """REPA in the training of one run: the projector, its loss, and the features of the samples."""

    observes = True

    def __init__(self, run: Joining) -> None:
        self.run, self.spec = run, RepaSpec.of(run.spec)
        self.samples, self.side = run.batches.samples, run.spec.data.size // run.spec.model.patch
        self.projector = fresh_projector(run.spec).to(run.device)
        super().__init__({"projector": self.projector})
        # Opened with its first use: a cache of features needs none.
        opened = cache(lambda: open_encoder(self.spec, self.samples, run.device, side=self.side))
        self.alignment = Alignment(self.spec, lambda x_BCHW: opened()(x_BCHW), self.projector)

    def prepare(self) -> Iterator[int]:
        """Encode the images of latents; embedded images are encoded as they come, which costs less
        than reading features."""
        if not self.run.spec.data.holds.latents:
            return
        check_encoder(self.spec, self.samples)
        found, digest = self.run.folder.cache, encoder_digest(self.spec)
        features = feature_cache(found, self.spec, self.samples, side=self.side, encoder=digest)
        if not features.complete:
            encode = open_feature_encoder(self.spec, self.samples, self.run.device, side=self.side)
            yield from features.fill(encode)
        self.run.batches.targets = features.features

    def loss(self, loss_B: Tensor, done: ForwardPass) -> Tensor:
        batch = done.batch
        return loss_B + self.alignment.loss(
            done.streams, batch.x_BCHW, batch.routing, batch.target_BNE
        )


def fresh_projector(spec: RunSpec) -> Projector:
    """Return the projector of a run, initialised from the run's seed."""
    repa = RepaSpec.of(spec)
    with initialised(spec.seed, "projector"):
        return Projector(spec.model.width, repa.hidden, repa.features)


def feature_cache(
    folder: Path, spec: RepaSpec, samples: Samples, *, side: int, encoder: str
) -> FeatureCache:
    """Return the cache of a run's features, filled or not.

    Args:
        folder: where the caches of a lab lie.
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
