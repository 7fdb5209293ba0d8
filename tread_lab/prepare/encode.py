"""Encodes images into packed arrays of latents: resumable, on several devices, in parts."""

# B batch, C channels, H height, W width

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tread_lab import draws
from tread_lab.data.autoencoder import Encoder
from tread_lab.data.resumable import DAMAGED, STORED, Array
from tread_lab.engine.precision import matrix_products
from tread_lab.prepare.images import DamagedImage, ImageFiles, centre_crop, digest_of, read_ahead
from tread_lab.prepare.packed import LABELS, Build, Steps, check_whole, finish
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
    images: ImageFiles,
    folder: Path,
    encoder: Encoder,
    stored: Stored,
    *,
    devices: Sequence[torch.device],
    part: tuple[int, int] = (1, 1),
    batch: int = 32,
    workers: int = 1,
    skip_damaged: bool = False,
    licence: str | None = None,
) -> Iterator[Steps]:
    """Encode the images that are still to come into packed arrays; yield how far it is.

    The latents of an image depend on it and on the images of its batch (by rounding alone), not on
    devices, parts, or where an earlier attempt was stopped; draws are named by the image's number.

    Args:
        part: k of n processes that share the work; the last one to end writes the manifest.
        batch: images that are encoded and written together; equal in all parts and attempts.
        workers: threads that read images.
        licence: a note on the licence of the images, kept in the manifest.

    Raises:
        DamagedImage: an image cannot be read, and `skip_damaged` does not leave it out.
        UserError: the folder holds something else, such as latents of files of other sizes, or
            that were written later.
        DiskFull: there is no room; the same call goes on later.
    """
    if stored.size % encoder.zoom:
        raise UserError(f"--size {stored.size}: the autoencoder needs a multiple of {encoder.zoom}")
    plan = _plan(images, encoder, stored, batch, licence)
    written = [images.written(place) for place in range(len(images.names))]
    sizes_N, times_N = np.array(written, np.int64).T
    whole = {**plan, "sizes": hashlib.sha256(sizes_N.tobytes()).hexdigest()[:16]}
    if check_whole(folder, whole):
        _check_age(folder, images, times_N)
        return
    build = Build(folder, plan, _arrays(encoder, stored), len(images.names))
    with build.one_part(part):
        build.compare_files(sizes_N)
        chunks = build.open_parts(batch, part)
        job = _Job(images, build, stored, workers=workers, skip_damaged=skip_damaged)
        yield from job.run(encoder, devices, chunks)
    finish(
        build,
        whole,
        channels_name=_name(stored),
        labels=np.asarray(images.labels, np.int64),
        classes=images.classes,
        captions=images.captions,
        names=images.names,
    )


class _Job:
    """Reads, crops, encodes and writes chunks: a pool of threads for images, a thread a device."""

    def __init__(
        self, images: ImageFiles, build: Build, stored: Stored, *, workers: int, skip_damaged: bool
    ) -> None:
        self.images, self.build, self.stored = images, build, stored
        self._workers, self._skip_damaged = workers, skip_damaged
        self._stop = threading.Event()

    def run(
        self, encoder: Encoder, devices: Sequence[torch.device], chunks: Sequence[range]
    ) -> Iterator[Steps]:
        done = damaged = 0
        total = sum(map(len, chunks))
        yield Steps(done, total, damaged)
        events: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
        with (
            matrix_products("tf32"),
            ThreadPoolExecutor(self._workers) as readers,
            ThreadPoolExecutor(len(devices)) as pool,
        ):
            waiting = iter(chunks)  # shared: a device takes the next chunk when it is ready
            lock = threading.Lock()

            def following() -> range | None:
                with lock:
                    return None if self._stop.is_set() else next(waiting, None)

            def work(device: torch.device) -> None:
                try:
                    for counts in self._device(encoder.on(device), following, readers):
                        events.put(counts)
                finally:
                    events.put(None)

            try:
                running = [pool.submit(work, device) for device in devices]
                alive = len(running)
                while alive:
                    counts = events.get()
                    if counts is None:
                        alive -= 1
                        self._raised(running)
                        continue
                    done, damaged = done + counts[0], damaged + counts[1]
                    yield Steps(done, total, damaged)
                self._raised(running)
            finally:
                self._stop.set()
                readers.shutdown(wait=False, cancel_futures=True)

    def _raised(self, running: Sequence[Future[None]]) -> None:
        for future in running:
            if future.done():
                future.result()

    def _device(
        self, moments: Moments, following: Callable[[], range | None], readers: ThreadPoolExecutor
    ) -> Iterator[tuple[int, int]]:
        """Encode chunk after chunk; yield the images that are done and the damaged ones."""
        for chunk, images in read_ahead(readers, self._read, iter(following, None)):
            yield len(chunk), self._write(chunk, images, moments)

    def _read(self, place: int) -> NDArray[np.uint8] | None:
        """Return a cropped image [3, size, size], `None` if it is damaged and may be left out."""
        try:
            image = self.images.open(place)
            return centre_crop(image, self.stored.size).transpose(2, 0, 1)
        except DamagedImage as error:
            if self._skip_damaged:
                return None
            raise DamagedImage(
                f"{error}; mend it, or give --skip-damaged; the same command goes on"
            ) from None

    def _write(
        self, chunk: range, images: Sequence[NDArray[np.uint8] | None], moments: Moments
    ) -> int:
        """Encode and store a chunk; return the number of damaged images."""
        side = self.stored.size
        blank = np.zeros((3, side, side), np.uint8)
        images_BCHW = np.stack([blank if image is None else image for image in images])
        x_BCHW = torch.from_numpy(images_BCHW)
        name = _name(self.stored)
        content: dict[str, NDArray[Any]] = {name: self._latents(moments, x_BCHW, chunk, "plain")}
        if self.stored.flips:
            content[f"{name}_flip"] = self._latents(moments, x_BCHW.flip(-1), chunk, "mirrored")
        if self.stored.images:
            content["images"] = images_BCHW
        marks = np.array([DAMAGED if image is None else STORED for image in images], np.uint8)
        self.build.write(chunk.start, content, marks)
        return int((marks == DAMAGED).sum())

    def _latents(
        self, moments: Moments, x_BCHW: Tensor, chunk: range, kind: str
    ) -> NDArray[np.floating]:
        mean_BCHW, log_variance_BCHW = (part.float().cpu() for part in moments(x_BCHW))
        if self.stored.posterior == "moments":
            return torch.cat([mean_BCHW, log_variance_BCHW], dim=1).numpy()
        if self.stored.posterior == "sample":
            shape = tuple(mean_BCHW.shape[1:])
            noise = [draws.normal(shape, "encode", kind, place) for place in chunk]
            mean_BCHW = mean_BCHW + (0.5 * log_variance_BCHW).exp() * torch.stack(noise)
        return mean_BCHW.numpy()


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


def _check_age(folder: Path, images: ImageFiles, times_N: NDArray[np.int64]) -> None:
    """Refuse images that were written after the data set: their pixels may be other ones."""
    labels, latest = folder / LABELS, int(times_N.argmax())
    if times_N[latest] > labels.stat().st_mtime_ns:
        raise UserError(
            f"{folder} holds a data set that is older than {images.names[latest]}; choose another"
            f" folder, remove this one, or, where only times changed, `touch {labels}`"
        )


def _plan(
    images: ImageFiles, encoder: Encoder, stored: Stored, batch: int, licence: str | None
) -> dict[str, object]:
    """Return everything that decides the content, as the manifest keeps it."""
    fed = {} if encoder.range == "signed" else {"decoder_range": encoder.range}
    return {
        "names": digest_of(images),
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
