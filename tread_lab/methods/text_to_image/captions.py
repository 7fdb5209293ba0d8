"""Captions as a network sees them: text tokens of a split, made once, one caption drawn a step."""

# B batch, N samples of the split, T text tokens, E their width

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tread_lab import draws
from tread_lab.config.errors import UserError
from tread_lab.config.run import RunSpec
from tread_lab.data.feature_cache import FeatureCache
from tread_lab.data.latents import CAPTIONS, write_captions
from tread_lab.data.source import Samples, open_data
from tread_lab.data.stored import Captions
from tread_lab.methods.text_to_image.spec import CaptionSpec
from tread_lab.methods.text_to_image.text_encoder import (
    VARIABLE,
    encoder_folder,
    open_text_encoder,
    text_encoder_digest,
)
from tread_lab.records.run_folder import RunFolder
from tread_lab.train.joining import Joining, Part


class CaptionTokens:
    """Cached tokens of all captions of a split, and of the empty text.

    Args:
        folder: folder of a lab's caches.
        captions: all captions of each sample.

    Attributes:
        digest: digest of the captions.
        encoder: digest of the text encoder.

    Raises:
        UserError: the encoder is missing.
    """

    def __init__(self, folder: Path, spec: CaptionSpec, captions: Sequence[Captions]) -> None:
        self.spec, self.captions, self.digest = spec, captions, captions_digest(captions)
        self._texts = [*(text for texts in captions for text in texts), ""]
        self._counts_N = torch.tensor([len(texts) for texts in captions])
        self._first_N = self._counts_N.cumsum(0) - self._counts_N
        self.encoder = text_encoder_digest(spec)
        encoder = [spec.encoder, self.encoder]
        fingerprint: dict[str, object] = {"captions": self.digest, "encoder": encoder}
        shape = (len(self._texts), spec.tokens, spec.width)
        self._cache = FeatureCache(folder, shape, fingerprint, kind="captions")

    def __len__(self) -> int:
        return len(self.captions)

    def fill(self, device: torch.device) -> Iterator[int]:
        """Compute missing tokens, yielding the number of finished captions.

        Raises:
            UserError: the encoder cannot be opened.
            DiskFull: no space for the tokens.
        """
        if self._cache.complete:
            return
        encode = open_text_encoder(self.spec, device)
        yield from self._cache.fill(lambda ids_B: encode([self._texts[k] for k in ids_B.tolist()]))

    def drawn(self, ids_B: Tensor, dropped_B: Tensor, *key: int | str) -> Tensor:
        """Return fp16 tokens [B, T, E] of one caption per sample, drawn with seed `key`, or of the
        empty text for dropped captions."""
        u_B = draws.uniform((len(ids_B),), *key, "caption")
        rows_B = self._first_N[ids_B] + (u_B * self._counts_N[ids_B]).long()
        return self._cache.features(torch.where(dropped_B, self._empty, rows_B))

    def of(self, ids_B: Tensor) -> Tensor:
        """Return fp16 tokens [B, T, E] of the first caption of each sample; index N is the empty
        text."""
        first_N = torch.cat([self._first_N, torch.tensor([self._empty])])
        return self._cache.features(first_N[ids_B.cpu()]).to(ids_B.device)

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """Return the digests of captions and encoder."""
        return {"captions": self.digest, "text encoder": self.encoder}

    def record(self) -> Mapping[str, Any]:
        """Return the entry on captions in the record of an evaluation."""
        digests = {"sha256": self.digest, "encoder": self.encoder}
        return {"captions": {"heldout": len(self), **digests}}

    def write(self, folder: Path, ids_N: Sequence[int]) -> None:
        """Write the caption that each image was drawn from, in the order of the images."""
        write_captions(folder / CAPTIONS, ([self.captions[sample][0]] for sample in ids_N))

    @property
    def _empty(self) -> int:
        """The row of the empty text, the last one."""
        return len(self._texts) - 1


class Captioned(Part):
    """Text to image in the training of one run: batches bring captions in place of classes."""

    def __init__(self, run: Joining) -> None:
        super().__init__()
        self.run = run

    def prepare(self) -> Iterator[int]:
        """Encode the captions, including held-out ones for later evaluations."""
        run, spec = self.run, CaptionSpec.of(self.run.spec)
        for samples in (open_data(run.spec.data, "heldout"), run.batches.samples):
            tokens = caption_tokens(spec, samples, run.folder.cache)
            yield from tokens.fill(run.device)
        run.batches.condition = tokens.drawn


def heldout_captions(spec: RunSpec, folder: RunFolder, device: torch.device) -> CaptionTokens:
    """Return the text tokens of the held-out captions, all computed.

    Raises:
        UserError: the run was trained with another encoder.
    """
    encoded = CaptionSpec.of(spec)
    captions = caption_tokens(encoded, open_data(spec.data, "heldout"), folder.cache)
    trained_with = folder.trained_with().get(f"weights {encoded.encoder}")
    if trained_with and captions.encoder not in trained_with:
        raise UserError(
            f"captions: run {folder.name} was trained with another {encoded.encoder} than the one"
            f" in {encoder_folder(encoded)}. Set {VARIABLE} to the folder of the run's encoder."
        )
    for _ in captions.fill(device):
        pass
    return captions


def caption_tokens(spec: CaptionSpec, samples: Samples, folder: Path) -> CaptionTokens:
    """Return the (possibly uncomputed) tokens of the captions of `samples`.

    Args:
        folder: folder of a lab's caches.

    Raises:
        UserError: the data have no captions, or the encoder is missing.
    """
    return CaptionTokens(folder, spec, _present(samples))


def check_captions(spec: CaptionSpec, samples: Samples) -> None:
    """Check that captions and encoder are available, without opening the encoder.

    Raises:
        UserError: as in `caption_tokens`.
    """
    _present(samples)
    encoder_folder(spec)


def captions_digest(captions: Sequence[Captions]) -> str:
    """Return a digest of all captions of each sample."""
    return hashlib.sha256(json.dumps([*captions]).encode()).hexdigest()[:16]


def captions_of(samples: Samples) -> list[Captions] | None:
    """Return all captions of each sample, or `None`.

    Raises:
        UserError: a sample without caption, or a damaged file.
    """
    read: Callable[[], list[Captions] | None] = getattr(samples, "captions", lambda: None)
    return read()


def _present(samples: Samples) -> list[Captions]:
    found = captions_of(samples)
    if found is None:
        raise UserError(
            "captions: requires captions.jsonl beside packed latents (and heldout_captions.jsonl"
            " beside held-out ones). Try `data encode --captions`."
        )
    return found
