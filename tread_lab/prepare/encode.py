"""Encodes images into packed arrays of latents: resumable, on several devices."""

# B batch, C channels, H height, W width

from __future__ import annotations

import functools
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tread_lab import draws
from tread_lab.data.autoencoder import Encoder
from tread_lab.data.resumable import DAMAGED, STORED, Array, ResumableArrays
from tread_lab.engine.precision import matrix_products
from tread_lab.prepare.images import AHEAD, DamagedImage, Images, digest_of, read_ahead
from tread_lab.prepare.packed import Steps, build, check_whole, finish
from tread_lab.specs.errors import UserError

# uint8 images [B, 3, H, W] -> mean and log-variance [B, C, h, w]
Moments = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What is stored of each image.

    Attributes:
        size: side of the image that is encoded, cut out by ADM's centre crop.
        posterior: the `mean` of the encoder's posterior, a `sample` of it, or its `moments`, of
            which training draws a new sample each epoch.
        flips: the same of the mirrored image, too.
        images: the cropped image itself, too.
        dtype: of the latents.
    """

    size: int = 256
    posterior: Literal["mean", "sample", "moments"] = "mean"
    flips: bool = False
    images: bool = False
    dtype: Literal["float16", "float32"] = "float16"


def encode(
    images: Images,
    folder: Path,
    encoder: Encoder,
    stored: Stored,
    *,
    devices: Sequence[torch.device],
    batch: int = 32,
    workers: int = 1,
    skip_damaged: bool = False,
    licence: str | None = None,
) -> Iterator[Steps]:
    """Encode the images that are still to come into packed arrays; yield how far it is.

    The latents of an image depend on it and on the images of its batch (by rounding alone), not on
    devices, or where an earlier attempt was stopped; draws are named by the image's number.

    Args:
        batch: images that are encoded and written together; equal in all attempts.
        workers: threads that read images.
        licence: a note on the licence of the images, kept in the manifest.

    Raises:
        DamagedImage: an image cannot be read, and `skip_damaged` does not leave it out.
        Busy: another process encodes into the folder.
        UserError: the folder holds something else, such as latents of files that were written
            anew since.
        DiskFull: there is no room; the same call goes on later.
    """
    if stored.size % encoder.zoom:
        raise UserError(f"--size {stored.size}: the autoencoder needs a multiple of {encoder.zoom}")
    plan = _plan(images, encoder, stored, batch, licence)
    if check_whole(folder, plan):
        return
    with build(folder, plan, _arrays(encoder, stored), len(images.names)) as made:
        job = _Job(images, made, stored, encoder, workers)
        yield from job.run(devices, made.open_parts(batch), skip_damaged=skip_damaged)
        finish(
            folder,
            made,
            plan,
            labels=np.asarray(images.labels, np.int64),
            classes=images.classes,
            captions=images.captions,
            names=images.names,
        )


class _Job:
    """Crops, encodes and writes chunks: a pool of threads for images, a thread a device."""

    def __init__(
        self,
        images: Images,
        made: ResumableArrays,
        stored: Stored,
        encoder: Encoder,
        workers: int,
    ) -> None:
        self._images, self._made, self._stored = images, made, stored
        self._encoder, self._workers = encoder, workers
        self._free: queue.SimpleQueue[Moments] = queue.SimpleQueue()  # one for each idle device

    def run(
        self, devices: Sequence[torch.device], chunks: Sequence[range], *, skip_damaged: bool
    ) -> Iterator[Steps]:
        done = damaged = 0
        total = sum(map(len, chunks))
        yield Steps(done, total, damaged)
        for device in devices:
            self._free.put(self._encoder.on(device))
        crop = functools.partial(
            self._images.crop, side=self._stored.size, skip_damaged=skip_damaged
        )
        with (
            matrix_products("tf32"),
            ThreadPoolExecutor(self._workers) as readers,
            ThreadPoolExecutor(len(devices)) as encoders,
        ):
            try:
                cropped = read_ahead(readers, crop, chunks, AHEAD * len(devices))
                encoding = (encoders.submit(self._encode, *chunk) for chunk in cropped)
                for written in _as_ended(encoding, len(devices)):
                    marks = written.result()
                    done, damaged = done + len(marks), damaged + int((marks == DAMAGED).sum())
                    yield Steps(done, total, damaged)
            except DamagedImage as error:
                raise DamagedImage(f"{error}, with which the same command goes on") from None
            finally:
                for pool in (encoders, readers):
                    pool.shutdown(wait=False, cancel_futures=True)

    def _encode(
        self, chunk: range, images: Sequence[NDArray[np.uint8] | None]
    ) -> NDArray[np.uint8]:
        """Encode and store a chunk on a free device; return its marks."""
        blank = np.zeros((3, self._stored.size, self._stored.size), np.uint8)
        images_BCHW = np.stack([blank if image is None else image for image in images])
        x_BCHW, name = torch.from_numpy(images_BCHW), _name(self._stored)
        moments = self._free.get()
        try:
            content = {name: self._latents(moments, x_BCHW, chunk, "plain")}
            if self._stored.flips:
                content[f"{name}_flip"] = self._latents(moments, x_BCHW.flip(-1), chunk, "mirrored")
        finally:
            self._free.put(moments)
        if self._stored.images:
            content["images"] = images_BCHW
        marks = np.array([DAMAGED if image is None else STORED for image in images], np.uint8)
        self._made.write(chunk.start, content, marks)
        return marks

    def _latents(self, moments: Moments, x_BCHW: Tensor, chunk: range, kind: str) -> NDArray[Any]:
        mean_BCHW, log_variance_BCHW = (part.float().cpu() for part in moments(x_BCHW))
        if self._stored.posterior == "moments":
            return torch.cat([mean_BCHW, log_variance_BCHW], dim=1).numpy()
        if self._stored.posterior == "sample":
            shape = tuple(mean_BCHW.shape[1:])
            noise = [draws.normal(shape, "encode", kind, place) for place in chunk]
            mean_BCHW = mean_BCHW + (0.5 * log_variance_BCHW).exp() * torch.stack(noise)
        return mean_BCHW.numpy()


def _as_ended(running: Iterable[Future[Any]], most: int) -> Iterator[Future[Any]]:
    """Yield futures as they end; `most` are under way, and one waits for the first to end."""
    waiting: set[Future[Any]] = set()
    for future in running:
        waiting.add(future)
        if len(waiting) > most:
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from ended
    yield from as_completed(waiting)


def _name(stored: Stored) -> str:
    return "moments" if stored.posterior == "moments" else "latents"


def _arrays(encoder: Encoder, stored: Stored) -> dict[str, Array]:
    name, side = _name(stored), stored.size // encoder.zoom
    channels = encoder.channels * (2 if name == "moments" else 1)
    latents = Array(stored.dtype, (channels, side, side))
    arrays = {name: latents}
    if stored.flips:
        arrays[f"{name}_flip"] = latents
    if stored.images:
        arrays["images"] = Array("uint8", (3, stored.size, stored.size))
    return arrays


def _plan(
    images: Images, encoder: Encoder, stored: Stored, batch: int, licence: str | None
) -> dict[str, object]:
    """Return everything that decides the content, as the manifest keeps it."""
    fed = {} if encoder.range == "signed" else {"decoder_range": encoder.range}
    return {
        "names": digest_of(images),
        "files": images.files_digest(),
        "encoder": {"name": encoder.name, "digest": encoder.digest},
        "scale": encoder.scale,
        "shift": encoder.shift,
        "crop": "centre crop of ADM",
        **vars(stored),
        **fed,
        "batch": batch,
        "classes": len(images.classes),
        "licence": licence,
    }
