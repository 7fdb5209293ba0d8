"""The data encode command: images to packed latents, on one device or several, in one part or n."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import torch

from tread_lab.commands.exit_codes import DONE
from tread_lab.data.autoencoder import Encoder, PixelRange
from tread_lab.data.manifest import read_manifest
from tread_lab.engine.device import pick
from tread_lab.prepare.encode import Stored, encode
from tread_lab.prepare.images import open_images
from tread_lab.screen.console import say
from tread_lab.screen.data import show_packed, show_steps


def run(
    *,
    images: Path,
    out: Path,
    autoencoder: str,
    size: int,
    posterior: Literal["mean", "sample", "moments"],
    range: PixelRange,
    flips: bool,
    with_images: bool,
    fp32: bool,
    captions: Path | None,
    limit: int | None,
    batch: int,
    device: str | None,
    workers: int | None,
    part: tuple[int, int],
    skip_damaged: bool,
    licence: str | None,
    as_json: bool,
) -> int:
    """Encode what is still to come; return the exit code."""
    opened = open_images(images, captions, limit)
    encoder = Encoder(autoencoder, range=range)
    dtype: Literal["float16", "float32"] = "float32" if fp32 else "float16"
    stored = Stored(size=size, posterior=posterior, flips=flips, images=with_images, dtype=dtype)
    devices = _devices(device)
    say(f"{len(opened.names):,} images of {len(opened.classes):,} classes in {images}")
    steps = encode(
        opened,
        out,
        encoder,
        stored,
        devices=devices,
        part=part,
        batch=batch,
        workers=workers or os.cpu_count() or 1,
        skip_damaged=skip_damaged,
        licence=licence,
    )
    show_steps(steps, "images")
    return _show_end(out, part, as_json=as_json)


def _show_end(out: Path, part: tuple[int, int], *, as_json: bool) -> int:
    """Show the whole data set, or say that other parts are still to come; return the exit code."""
    manifest = read_manifest(out)
    if manifest is None:
        say(f"part {part[0]}/{part[1]} of {out} is done; other parts are still to come")
    else:
        show_packed(out, manifest, as_json=as_json)
    return DONE


def _devices(names: str | None) -> list[torch.device]:
    """Return the devices of `cuda:0,cuda:1`; all GPUs if none is named, else the CPU."""
    if names is None:
        return [pick(f"cuda:{k}") for k in range(torch.cuda.device_count())] or [pick("cpu")]
    return [pick(name.strip()) for name in names.split(",")]
