"""Encodes images into packed arrays of latents: resumable, on several devices."""

# B batch, C channels, H height, W width

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tread_lab import draws
from tread_lab.config.errors import UserError
from tread_lab.data.arrays import Parts
from tread_lab.data.autoencoder import Encoder
from tread_lab.data.images import Images, ahead, crops
from tread_lab.data.pack import NUMBER, Beside, Steps, build

# uint8 images [B, 3, H, W] -> mean and log-variance [B, C, h, w]
Moments = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Stored data per image.

    Attributes:
        size: side of the encoded image, after ADM's centre crop.
        posterior: `mean` or one `sample` of the encoder's posterior, or its `moments`, from which
            training draws a new sample each epoch.
        flips: also store the mirrored image's latents.
        images: also store the cropped image.
        dtype: data type of the latents.
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
    """Encode the remaining images into packed arrays; yield the progress.

    The latents of an image depend on the image and, by rounding, on its batch, but not on devices
    or interruptions; draws are seeded by the image's number.

    Args:
        batch: images encoded and written together; the same in all attempts.
        workers: threads that read images.
        licence: a note on the licence of the images, kept in the manifest.

    Raises:
        DamagedImage: an image cannot be read, and `skip_damaged` does not leave it out.
        Busy: another process encodes into the folder.
        UserError: the folder has other content, e.g. latents of files that have changed.
        DiskFull: no space; call again to continue.
    """
    if stored.size % encoder.zoom:
        nearest = max(1, round(stored.size / encoder.zoom)) * encoder.zoom
        raise UserError(
            f"--size: must be a multiple of {encoder.zoom}, got {stored.size}. Try {nearest}."
        )
    plan: dict[str, object] = {
        **images.digests(),
        "encoder": {"name": encoder.name, "digest": encoder.digest},
        "scale": encoder.scale,
        "shift": encoder.shift,
        "crop": "centre crop of ADM",
        **vars(stored),
        **({} if encoder.range == "signed" else {"decoder_range": encoder.range}),
        "classes": len(images.classes),
        "licence": licence,
    }

    def write(parts: Parts, todo: Sequence[range]) -> Generator[tuple[int, int], None, None]:
        cropped = crops(images, todo, stored.size, workers=workers, skip_damaged=skip_damaged)
        encoders = [encoder.on(device) for device in devices]
        with ExitStack() as stack:
            pools = [stack.enter_context(ThreadPoolExecutor(1)) for _ in devices]
            begun = (  # a batch on each device in turn
                pools[k % len(pools)].submit(
                    _encode, parts, rows, *found, encoders[k % len(pools)], stored
                )
                for k, (rows, found) in enumerate(zip(todo, cropped))
            )
            yield from ahead(begun, len(devices))

    beside = Beside(images.labels, images.classes, images.captions, images.names)
    return build(folder, plan, batch, write, beside)


def _encode(
    parts: Parts,
    rows: range,
    numbers: Sequence[int],
    images_BCHW: NDArray[np.uint8],
    moments: Moments,
    stored: Stored,
) -> tuple[int, int]:
    """Encode and store a batch; return the number of its images, and of those that are whole."""
    blank = np.zeros((1, 3, stored.size, stored.size), np.uint8)  # where all images are damaged
    x_BCHW = torch.from_numpy(images_BCHW if numbers else blank)
    name = "moments" if stored.posterior == "moments" else "latents"
    arrays: dict[str, NDArray[Any]] = {NUMBER: np.array(numbers, np.int64)}
    arrays[name] = _latents(moments, x_BCHW, numbers, stored, "plain")
    if stored.flips:
        arrays[f"{name}_flip"] = _latents(moments, x_BCHW.flip(-1), numbers, stored, "mirrored")
    if stored.images:
        arrays["images"] = images_BCHW
    parts.write(rows, arrays)
    return len(rows), len(numbers)


def _latents(
    moments: Moments, x_BCHW: Tensor, numbers: Sequence[int], stored: Stored, kind: str
) -> NDArray[Any]:
    mean_BCHW, log_variance_BCHW = (part.float().cpu() for part in moments(x_BCHW))
    latents_BCHW = mean_BCHW
    if stored.posterior == "moments":
        latents_BCHW = torch.cat([mean_BCHW, log_variance_BCHW], dim=1)
    elif stored.posterior == "sample" and numbers:
        shape = tuple(mean_BCHW.shape[1:])
        noise = torch.stack([draws.normal(shape, "encode", kind, n) for n in numbers])
        latents_BCHW = mean_BCHW + (0.5 * log_variance_BCHW).exp() * noise
    array: NDArray[Any] = latents_BCHW[: len(numbers)].numpy().astype(stored.dtype)
    return array
