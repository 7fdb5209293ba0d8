"""Captions as a network sees them: text tokens of a split, made once, one caption drawn a step."""

# B batch, N samples of the split, T text tokens, E their width

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from tread_lab import draws
from tread_lab.data.captions import Captions, captions_of
from tread_lab.data.source import Samples
from tread_lab.engine.features import FeatureCache
from tread_lab.engine.text_encoder import encoder_folder, open_text_encoder, text_encoder_digest
from tread_lab.specs.captions import CaptionSpec
from tread_lab.specs.errors import UserError


class CaptionTokens:
    """The tokens of all captions of a split, and those of the empty text, in a lab's cache.

    Args:
        folder: where the caches of a lab lie.
        captions: all captions of each sample.

    Attributes:
        digest: of the captions.
        encoder: digest of what encodes them.

    Raises:
        UserError: the encoder is not where it should be.
    """

    def __init__(self, folder: Path, spec: CaptionSpec, captions: Sequence[Captions]) -> None:
        self.spec, self.captions, self.digest = spec, captions, captions_digest(captions)
        self._texts = [*(text for texts in captions for text in texts), ""]
        self._counts_N = torch.tensor([len(texts) for texts in captions])
        self._first_N = self._counts_N.cumsum(0) - self._counts_N
        self.encoder = text_encoder_digest(spec)
        encoder = [spec.encoder, self.encoder]
        made_with: dict[str, object] = {"captions": self.digest, "encoder": encoder}
        shape = (len(self._texts), spec.tokens, spec.width)
        self._cache = FeatureCache(folder, shape, made_with, kind="captions")

    def __len__(self) -> int:
        return len(self.captions)

    def fill(self, device: torch.device) -> Iterator[int]:
        """Compute what the cache lacks, yielding the captions that are done.

        Raises:
            UserError: the encoder cannot be opened.
            DiskFull: there is no room for the tokens.
        """
        if self._cache.complete:
            return
        encode = open_text_encoder(self.spec, device)
        yield from self._cache.fill(lambda ids_B: encode([self._texts[k] for k in ids_B.tolist()]))

    def drawn(self, ids_B: Tensor, dropped_B: Tensor, *key: int | str) -> Tensor:
        """Return tokens [B, T, E] in fp16 of one caption of each sample, drawn by what `key` names;
        of the empty text where the caption is dropped."""
        u_B = draws.uniform((len(ids_B),), *key, "caption")
        rows_B = self._first_N[ids_B] + (u_B * self._counts_N[ids_B]).long()
        return self._cache.take(torch.where(dropped_B, self._empty, rows_B))

    def prompts(self, ids_B: Tensor) -> Tensor:
        """Return tokens [B, T, E] in fp16 of the first caption of each sample; number N, which no
        sample has, stands for the empty text."""
        first_N = torch.cat([self._first_N, torch.tensor([self._empty])])
        return self._cache.take(first_N[ids_B.cpu()]).to(ids_B.device)

    @property
    def _empty(self) -> int:
        """The row of the empty text, the last one."""
        return len(self._texts) - 1


def caption_tokens(spec: CaptionSpec, samples: Samples, folder: Path) -> CaptionTokens:
    """Return the tokens of the captions of `samples`, computed or not.

    Args:
        folder: where the caches of a lab lie.

    Raises:
        UserError: the data have no captions, or the encoder is not where it should be.
    """
    return CaptionTokens(folder, spec, _present(samples))


def check_captions(spec: CaptionSpec, samples: Samples) -> None:
    """Check that there are captions, and an encoder that can be opened, without opening it.

    Raises:
        UserError: as `caption_tokens`.
    """
    _present(samples)
    encoder_folder(spec)


def captions_digest(captions: Sequence[Captions]) -> str:
    """Return a digest of all captions of each sample."""
    return hashlib.sha256(json.dumps([*captions]).encode()).hexdigest()[:16]


def _present(samples: Samples) -> list[Captions]:
    found = captions_of(samples)
    if found is None:
        raise UserError(
            "captions: the data have none; put captions.jsonl beside packed latents (and"
            " heldout_captions.jsonl beside held-out ones), as `data encode --captions` does"
        )
    return found
