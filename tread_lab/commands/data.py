"""The commands that make, check and measure data sets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal

import torch

from tread_lab.commands.options import (
    DONE,
    UNFINISHED,
    DataEncode,
    DataPack,
    DataReference,
    DataStats,
    DataVerify,
)
from tread_lab.data.latents import read_manifest, renew_manifest
from tread_lab.data.pack import pack as pack_steps
from tread_lab.data.pack import source_of
from tread_lab.data.source import open_store
from tread_lab.data.statistics import OURS, Statistics, write_statistics
from tread_lab.engine.device import pick
from tread_lab.engine.precision import matrix_products
from tread_lab.records.durable import writing
from tread_lab.specs.units import amount, counted
from tread_lab.terminal.console import answer, say
from tread_lab.terminal.data import show_measured, show_packed, show_steps


def encode(options: DataEncode) -> int:
    """Encode images to packed latents, on one device or several; return the exit code."""
    from tread_lab.data.autoencoder import Encoder
    from tread_lab.data.encode import Stored
    from tread_lab.data.encode import encode as encode_steps
    from tread_lab.data.images import open_images

    opened = open_images(options.images, options.captions, options.limit)
    encoder = Encoder(options.autoencoder, range=options.range)
    dtype: Literal["float16", "float32"] = "float32" if options.fp32 else "float16"
    stored = Stored(
        size=options.size,
        posterior=options.posterior,
        flips=options.flips,
        images=options.with_images,
        dtype=dtype,
    )
    devices = _devices(options.device)
    say(f"{len(opened.names):,} images of {len(opened.classes):,} classes in {options.images}")
    steps = encode_steps(
        opened,
        options.out,
        encoder,
        stored,
        devices=devices,
        batch=options.batch,
        workers=options.workers or os.cpu_count() or 1,
        skip_damaged=options.skip_damaged,
        licence=options.licence,
    )
    with matrix_products("tf32"):
        show_steps(steps, "images")
    return _packed(options.out, as_json=options.as_json)


def _packed(folder: Path, *, as_json: bool) -> int:
    """Show what a folder of packed latents holds now; return the exit code."""
    manifest = read_manifest(folder)
    assert manifest is not None
    show_packed(folder, manifest, as_json=as_json)
    return DONE


def _devices(names: str | None) -> list[torch.device]:
    """Return the devices of `cuda:0,cuda:1`; all GPUs if none is named, else the CPU."""
    if names is None:
        return [pick(f"cuda:{k}") for k in range(torch.cuda.device_count())] or [pick("cpu")]
    return [pick(name.strip()) for name in names.split(",")]


def pack(options: DataPack) -> int:
    """Pack any latents that a run can read into arrays; return the exit code."""
    source = options.source or source_of(options.path)
    show_steps(pack_steps(source, options.path, options.out, batch=options.batch), "samples")
    return _packed(options.out, as_json=options.as_json)


def verify(options: DataVerify) -> int:
    """Print one line for each fault of a data set; return the exit code."""
    from tread_lab.data.verify import faults

    path, found = options.path, []
    for fault in faults(options.source or source_of(path), path, classes=options.classes):
        found.append(fault)
        if not options.as_json:
            answer(fault)
    if options.as_json:
        print(json.dumps({"path": str(path), "faults": found}, indent=1))
    else:
        say(f"{path}: {counted(len(found), 'fault')}" if found else f"{path}: no faults")
    return UNFINISHED if found else DONE


def stats(options: DataStats) -> int:
    """Print what is stored, and write the statistics of its channels; return the exit code."""
    from tread_lab.data.measure import measure

    path = options.path
    measured = measure(open_store(options.source or source_of(path), path))
    show_measured(measured, as_json=options.as_json)
    if options.write:
        folder = path if path.is_dir() else path.parent
        with writing(folder, ""):
            write_statistics(folder / OURS, Statistics(measured.mean_C, measured.deviation_C))
        renew_manifest(folder, OURS)
        say(f"{folder / OURS}: mean and deviation of each channel, for data.normalise=true")
    return DONE


def reference(options: DataReference) -> int:
    """Write statistics of real images, which metrics compare with; return the exit code."""
    from tread_lab.data.images import open_images
    from tread_lab.evaluate.extraction import Extraction
    from tread_lab.evaluate.fidelity import inception_weights, sha256
    from tread_lab.evaluate.write_reference import write_reference
    from tread_lab.specs.metrics import INCEPTION

    inception_weights()  # before a million images are listed
    real, size = open_images(options.images, limit=options.limit), options.size
    say(f"{len(real.names):,} images of {len(real.classes):,} classes in {options.images}")
    out: Path = options.out
    steps = write_reference(
        real,
        size,
        out,
        Extraction(INCEPTION, device=pick(options.device)),
        keep=options.keep,
        batch=options.batch,
        workers=options.workers or os.cpu_count() or 1,
        skip_damaged=options.skip_damaged,
    )
    with matrix_products("fp32"):
        damaged = show_steps(steps, "images").damaged
    count = len(real.names) - damaged
    kept = min(options.keep, count)
    if options.as_json:
        tree = {"file": str(out), "images": count, "stored": kept, "damaged": damaged}
        print(json.dumps({**tree, "size": size, "sha256": sha256(out)}, indent=1))
        return DONE
    if damaged:
        answer(f"{counted(damaged, 'damaged image')} left out")
    answer(
        f"{out}: statistics of {count:,} images {size}x{size}, and {kept:,} of them,"
        f" {amount(out.stat().st_size)}"
    )
    answer(f"reference: {out}")
    return DONE
