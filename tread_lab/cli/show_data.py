"""Progress and results of making, checking and measuring data sets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tread_lab.cli.console import answers, say, table
from tread_lab.cli.progress import shown
from tread_lab.config.data import SD_SCALE
from tread_lab.config.units import amount, counted, span
from tread_lab.data.images import Images
from tread_lab.data.latents import read_manifest
from tread_lab.data.measure import Measured
from tread_lab.data.pack import Steps

EDM_DEVIATION = 0.5  # sigma_data
SD_CHANNELS = 4  # of the SD autoencoder, which made what EDM2, REPA and TREAD's code store


def show_images(images: Images, where: Path) -> None:
    """Print how many images were found."""
    say(f"{len(images.names):,} images of {len(images.classes):,} classes in {where}")


def show_steps(steps: Iterable[Steps], noun: str) -> Steps:
    """Show the steps of a build; return the last one."""
    step = Steps(0, 0)
    for step in shown(steps, noun):  # noqa: B007 (the last one is returned)
        pass
    return step


def show_packed(folder: Path, *, as_json: bool) -> None:
    """Print what a packed data set holds, and its settings for an experiment."""
    manifest: Any = read_manifest(folder)
    assert manifest is not None
    if as_json:
        print(json.dumps(manifest, indent=1))
        return
    size = sum(file["bytes"] for file in manifest["files"].values())
    shape = "x".join(map(str, manifest["latent"]))
    settings = ", ".join(f"{k}: {v}" for k, v in data_settings(folder, manifest).items())
    print(
        f"{folder}: {counted(manifest['samples'], 'sample')} of {shape},"
        f" {counted(manifest['labels'], 'label')}, {amount(size)}"
    )
    if manifest["damaged"]:
        print(f"{counted(manifest['damaged'], 'damaged image')} left out; damaged.txt names them")
    print(f"data: {{{settings}}}")


def data_settings(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `data` in an experiment that trains on a packed data set."""
    channels, side, _ = manifest["latent"]
    made_with = manifest["made_with"]
    settings = {"source": "latents", "path": folder, "channels": channels, "size": side}
    settings["classes"] = made_with.get("classes") or manifest["labels"]
    normalised = "statistics.json" in manifest["files"]
    if normalised or made_with.get("scaled"):
        settings["scale"] = 1
    if made_with.get("decoder_range"):
        settings["decoder_range"] = made_with["decoder_range"]
    if normalised:
        settings["normalise"] = "true"
    elif made_with.get("scale"):
        settings["decoder_scale"] = made_with["scale"]
    elif made_with.get("packed") in ("shards", "folder") and channels == SD_CHANNELS:
        settings["decoder_scale"] = SD_SCALE
    return settings


def show_measured(measured: Measured, *, as_json: bool) -> None:
    """Print what a data set holds, unscaled, and the scales for EDM and for flow matching."""
    scales = {"edm": measured.scale_for(EDM_DEVIATION), "flow": measured.scale_for(1.0)}
    if as_json:
        tree = {**vars(measured), "scale": scales}
        print(json.dumps(tree, indent=1, default=lambda array: array.tolist()))
        return
    counts = sorted(count for count in measured.counts if count)
    shape = "x".join(map(str, measured.shape))
    each = span([f"{counts[0]:,}", f"{counts[-1]:,}"])
    labels = f"{len(counts):,} of {counted(len(measured.counts), 'label')}"
    print(f"{counted(sum(counts), 'sample')} of {shape}, {labels}, {each} of each")
    rows = [
        (str(channel), f"{mean:.5g}", f"{deviation:.5g}")
        for channel, (mean, deviation) in enumerate(zip(measured.mean_C, measured.deviation_C))
    ]
    answers.print(table(("channel", "mean", "deviation"), rows))
    print(
        f"over all {measured.deviation:.5g} (of it {measured.spread:.3g} by the encoder's"
        f" posterior), from {measured.lowest:.4g} to {measured.highest:.4g}"
    )
    print(f"scale for a deviation of 0.5 (EDM): {scales['edm']:.5g}; of 1: {scales['flow']:.5g}")
