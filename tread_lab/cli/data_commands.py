"""The commands that make, check and measure data sets; torch is imported where they work."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Literal

from tread_lab.cli.options import (
    DONE,
    UNFINISHED,
    AsJson,
    Device,
    Images,
    Latents,
    Limit,
    Readers,
    SkipDamaged,
    Source,
)

ALL_CORES = os.cpu_count() or 1


def encode(
    images: Images,
    out: Annotated[Path, "folder of the data set", {"metavar": "OUT"}],
    *,
    autoencoder: Annotated[
        str, "folder or hub id of an AutoencoderKL of diffusers", {"metavar": "PATH"}
    ],
    size: Annotated[int, "side of the image that is encoded (256)"] = 256,
    posterior: Annotated[
        Literal["mean", "sample", "moments"],
        "store the mean, a sample, or the moments, which training samples anew (mean)",
    ] = "mean",
    pixels: Annotated[
        Literal["signed", "unit"],
        "pixels for the autoencoder: -1..1 (signed), or 0..1 (unit) as EDM2 has them",
        {"flag": "--range"},
    ] = "signed",
    flips: Annotated[bool, "store the latents of the mirrored images, too"] = False,
    with_images: Annotated[
        bool, "store the cropped images, too, for REPA", {"flag": "--images"}
    ] = False,
    fp32: Annotated[bool, "store fp32 (default: fp16)"] = False,
    captions: Annotated[
        Path | None, "COCO's annotations, or lines with file_name and text", {"metavar": "FILE"}
    ] = None,
    batch: Annotated[int, "images encoded and written together (32)"] = 32,
    device: Annotated[
        str | None, "cpu, cuda:0, or several: cuda:0,cuda:1 (default: all GPUs)"
    ] = None,
    licence: Annotated[
        str | None, "a note on the licence of the images, kept in the manifest"
    ] = None,
    limit: Limit = None,
    workers: Readers = ALL_CORES,
    skip_damaged: SkipDamaged = False,
    as_json: AsJson = False,
) -> int:
    """Encode images into packed latents.

    Example: tread-lab data encode imagenet/train latents --autoencoder sd-vae-ft-ema --flips
    """
    from tread_lab.cli.show_data import show_images, show_packed, show_steps
    from tread_lab.data.autoencoder import Encoder
    from tread_lab.data.encode import Stored
    from tread_lab.data.encode import encode as encode_steps
    from tread_lab.data.images import open_images
    from tread_lab.hardware import gpus
    from tread_lab.train.device import pick
    from tread_lab.train.precision import matrix_products

    opened = open_images(images, captions, limit)
    encoder = Encoder(autoencoder, range=pixels)
    dtype: Literal["float16", "float32"] = "float32" if fp32 else "float16"
    stored = Stored(size=size, posterior=posterior, flips=flips, images=with_images, dtype=dtype)
    show_images(opened, images)
    names = device.split(",") if device else [f"cuda:{k}" for k in range(len(gpus()))]
    steps = encode_steps(
        opened,
        out,
        encoder,
        stored,
        devices=[pick(name.strip()) for name in names or ["cpu"]],
        batch=batch,
        workers=workers,
        skip_damaged=skip_damaged,
        licence=licence,
    )
    with matrix_products("tf32"):
        show_steps(steps, "images")
    show_packed(out, as_json=as_json)
    return DONE


def pack(
    path: Latents,
    out: Annotated[Path, "folder of the packed arrays", {"metavar": "OUT"}],
    *,
    source: Source = None,
    batch: Annotated[int, "samples written at once (1024)"] = 1024,
    as_json: AsJson = False,
) -> int:
    """Pack latents of any source into arrays.

    Example: tread-lab data pack tars latents
    """
    from tread_lab.cli.show_data import show_packed, show_steps
    from tread_lab.data.pack import pack as pack_steps
    from tread_lab.data.pack import source_of

    show_steps(pack_steps(source or source_of(path), path, out, batch=batch), "samples")
    show_packed(out, as_json=as_json)
    return DONE


def verify(
    path: Latents,
    *,
    source: Source = None,
    classes: Annotated[int | None, "labels are 0..N-1 (default: the manifest's)"] = None,
    as_json: AsJson = False,
) -> int:
    """Find every fault of a data set, a line for each.

    Example: tread-lab data verify latents --classes 1000
    """
    from tread_lab.cli.console import say
    from tread_lab.config.units import counted
    from tread_lab.data.pack import source_of
    from tread_lab.data.verify import faults

    found = []
    for fault in faults(source or source_of(path), path, classes=classes):
        found.append(fault)
        if not as_json:
            print(fault)
    if as_json:
        print(json.dumps({"path": str(path), "faults": found}, indent=1))
    say(f"{path}: {counted(len(found), 'fault') if found else 'no faults'}")
    return UNFINISHED if found else DONE


def stats(
    path: Latents,
    *,
    source: Source = None,
    write: Annotated[bool, "write statistics.json, for data.normalise=true"] = False,
    as_json: AsJson = False,
) -> int:
    """Count classes, measure channels, find the scale.

    Example: tread-lab data stats latents --write
    """
    from tread_lab.cli.console import say
    from tread_lab.cli.show_data import show_measured
    from tread_lab.data.latents import renew_manifest
    from tread_lab.data.measure import measure
    from tread_lab.data.pack import source_of
    from tread_lab.data.source import open_store
    from tread_lab.data.statistics import OURS, Statistics, write_statistics
    from tread_lab.records.durable import writing

    measured = measure(open_store(source or source_of(path), path))
    show_measured(measured, as_json=as_json)
    if write:
        folder = path if path.is_dir() else path.parent
        with writing(folder, ""):
            write_statistics(folder / OURS, Statistics(measured.mean_C, measured.deviation_C))
        renew_manifest(folder, OURS)
        say(f"{folder / OURS}: mean and deviation of each channel, for data.normalise=true")
    return DONE


def reference(
    images: Images,
    out: Annotated[Path, "the .npz to write, for ADM's evaluator too", {"metavar": "OUT"}],
    *,
    size: Annotated[int, "side of the crop (256)"] = 256,
    keep: Annotated[int, "images stored for precision, recall and KID (10000)"] = 10_000,
    batch: Annotated[int, "images described together (100)"] = 100,
    limit: Limit = None,
    workers: Readers = ALL_CORES,
    skip_damaged: SkipDamaged = False,
    device: Device = None,
    as_json: AsJson = False,
) -> int:
    """Write statistics of real images, which FID compares with.

    Example: tread-lab data reference imagenet/train ours.npz --size 256
    """
    from tread_lab.cli.console import show_pairs
    from tread_lab.cli.show_data import show_images, show_steps
    from tread_lab.config.metrics import INCEPTION
    from tread_lab.data.images import open_images
    from tread_lab.evaluate.extraction import Extraction
    from tread_lab.evaluate.fidelity import inception_weights, sha256
    from tread_lab.evaluate.references import write_reference
    from tread_lab.train.device import pick
    from tread_lab.train.precision import matrix_products

    inception_weights()  # before a million images are listed
    real = open_images(images, limit=limit)
    show_images(real, images)
    steps = write_reference(
        real,
        size,
        out,
        Extraction(INCEPTION, device=pick(device)),
        keep=keep,
        batch=batch,
        workers=workers,
        skip_damaged=skip_damaged,
    )
    with matrix_products("fp32"):
        damaged = show_steps(steps, "images").damaged
    count = len(real.names) - damaged
    found = {"images": count, "stored": min(keep, count), "damaged": damaged, "size": size}
    tree = {"file": str(out), **found, "sha256": sha256(out)}
    if as_json:
        print(json.dumps(tree, indent=1))
    else:
        show_pairs([(name, str(value)) for name, value in tree.items()])
    return DONE
