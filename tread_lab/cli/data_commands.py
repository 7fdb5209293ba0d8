"""The commands that make, check and measure data sets."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from tread_lab.cli.console import say, show_facts
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
from tread_lab.cli.progress import with_progress
from tread_lab.config.data import SD_SCALE
from tread_lab.config.metrics import INCEPTION
from tread_lab.config.units import amount, counted
from tread_lab.data.autoencoder import Encoder
from tread_lab.data.content import sha256
from tread_lab.data.encode import Stored
from tread_lab.data.encode import encode as encode_steps
from tread_lab.data.images import Images as OpenedImages
from tread_lab.data.images import open_images
from tread_lab.data.latents import read_manifest, renew_manifest
from tread_lab.data.measure import Measured, faults, measure
from tread_lab.data.pack import Steps, source_of
from tread_lab.data.pack import pack as pack_steps
from tread_lab.data.source import open_store
from tread_lab.data.statistics import OURS, Statistics, write_statistics
from tread_lab.evaluate.extraction import Extraction
from tread_lab.evaluate.fidelity import inception_weights
from tread_lab.evaluate.references import write_reference
from tread_lab.hardware import gpus
from tread_lab.records.durable import writing
from tread_lab.train.device import pick
from tread_lab.train.precision import matrix_products

EDM_DEVIATION = 0.5  # sigma_data
SD_CHANNELS = 4  # of the SD autoencoder, which made what EDM2, REPA and TREAD's code store
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
        "pixel range of the autoencoder: -1..1 (signed), or 0..1 (unit) as in EDM2",
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
    batch: Annotated[int, "images per batch (32)"] = 32,
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
    """Check a data set, one line per fault.

    Example: tread-lab data verify latents --classes 1000
    """
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
    """Print classes, channel statistics and the scale.

    Example: tread-lab data stats latents --write
    """
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
    batch: Annotated[int, "images per batch (100)"] = 100,
    limit: Limit = None,
    workers: Readers = ALL_CORES,
    skip_damaged: SkipDamaged = False,
    device: Device = None,
    as_json: AsJson = False,
) -> int:
    """Write statistics of real images, which FID compares with.

    Example: tread-lab data reference imagenet/train ours.npz --size 256
    """
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
        damaged = show_steps(steps, "images")
    count = len(real.names) - damaged
    found = {"images": count, "stored": min(keep, count), "damaged": damaged, "size": size}
    show_facts({"file": str(out), **found, "sha256": sha256(out)}, as_json=as_json)
    return DONE


def show_images(images: OpenedImages, where: Path) -> None:
    """Print how many images were found."""
    say(f"{len(images.names):,} images of {len(images.classes):,} classes in {where}")


def show_steps(steps: Iterator[Steps], noun: str) -> int:
    """Show the progress of a build; return the number of damaged samples, 0 without a step."""
    _, last = with_progress(steps, noun)
    return last.damaged if last is not None else 0


def show_packed(folder: Path, *, as_json: bool) -> None:
    """Print the contents of a packed data set and its settings for an experiment."""
    manifest: Any = read_manifest(folder)
    assert manifest is not None
    names, settings = ("samples", "latent", "labels", "damaged"), data_settings(folder, manifest)
    size = amount(sum(file["bytes"] for file in manifest["files"].values()))
    facts = {name: manifest[name] for name in names} | {"size": size}
    show_facts({"folder": str(folder), **facts, "data": settings}, as_json=as_json)


def data_settings(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `data` in an experiment that trains on a packed data set."""
    channels, side, _ = manifest["latent"]
    made_with = manifest["made_with"]
    settings = {"source": "latents", "path": str(folder), "channels": channels, "size": side}
    settings["classes"] = made_with.get("classes") or manifest["labels"]
    normalised = "statistics.json" in manifest["files"]
    if normalised or made_with.get("scaled"):
        settings["scale"] = 1
    if made_with.get("decoder_range"):
        settings["decoder_range"] = made_with["decoder_range"]
    if normalised:
        settings["normalise"] = True
    elif made_with.get("scale"):
        settings["decoder_scale"] = made_with["scale"]
    elif made_with.get("packed") in ("shards", "folder") and channels == SD_CHANNELS:
        settings["decoder_scale"] = SD_SCALE
    return settings


def show_measured(measured: Measured, *, as_json: bool) -> None:
    """Print unscaled statistics of a data set, and the scales for EDM and flow matching."""
    counts = [count for count in measured.counts if count]
    facts = {
        "samples": sum(counts),
        "shape": measured.shape,
        "labels": len(counts),
        "samples_per_label": [min(counts), max(counts)],
        "channel_means": _five_digits(*measured.mean_C),
        "channel_deviations": _five_digits(*measured.deviation_C),
        "range": _five_digits(measured.lowest, measured.highest),
        "deviation": measured.deviation,
        "deviation_of_posterior": measured.spread,
        "scale_for_edm": measured.scale_for(EDM_DEVIATION),
        "scale_for_flow": measured.scale_for(1.0),
    }
    show_facts(facts, as_json=as_json)


def _five_digits(*values: float) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
