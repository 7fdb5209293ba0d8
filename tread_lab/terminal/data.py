"""Progress and results of making, checking and measuring data sets."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tread_lab.data.measure import Measured
from tread_lab.data.packed import Steps
from tread_lab.specs.data import SD_DEVIATION, SD_SCALE
from tread_lab.specs.units import amount, counted
from tread_lab.terminal.console import answer, answers, fitted
from tread_lab.terminal.progress import shown

EDM_DEVIATION = 0.5  # sigma_data
SD_CHANNELS = 4  # of the SD autoencoder, which made what EDM2, REPA and TREAD's code store


def show_steps(steps: Iterable[Steps], noun: str) -> Steps:
    """Go through the steps of a build; show how far it is, its rate, and the time left.

    Returns:
        the last of them.
    """
    step = Steps(0, 0)

    for step in shown(steps, noun):  # noqa: B007 (the last one is returned)
        pass
    return step


def show_packed(folder: Path, manifest: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what a packed data set holds, and how an experiment names it."""
    if as_json:
        print(json.dumps(manifest, indent=1))
        return
    size = sum(file["bytes"] for file in manifest["files"].values())
    shape = "x".join(map(str, manifest["latent"]))
    answer(
        f"{folder}: {counted(manifest['samples'], 'sample')} of {shape},"
        f" {counted(manifest['labels'], 'label')}, {amount(size)}"
    )
    if manifest["damaged"]:
        answer(f"{counted(manifest['damaged'], 'damaged image')} left out; damaged.txt names them")
    answer(
        f"data: {{{', '.join(f'{k}: {v}' for k, v in data_settings(folder, manifest).items())}}}"
    )


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
    if as_json:
        scales = {"edm": measured.scale_for(EDM_DEVIATION), "flow": measured.scale_for(1.0)}
        tree = _plain({**vars(measured), "scale": scales})
        print(json.dumps(tree, indent=1, allow_nan=False))
        return
    counts = sorted(count for count in measured.counts if count)
    empty = len(measured.counts) - len(counts)
    shape = "x".join(map(str, measured.shape))
    per_class = f"{counts[0]:,}" if counts[0] == counts[-1] else f"{counts[0]:,} to {counts[-1]:,}"
    answer(
        f"{counted(sum(counts), 'sample')} of {shape}, {counted(len(counts), 'label')},"
        f" {per_class} of each" + (f", {counted(empty, 'label')} without samples" if empty else "")
    )
    heads = ("channel", "mean", "deviation")
    rows = [
        (str(channel), f"{mean:.5g}", f"{deviation:.5g}")
        for channel, (mean, deviation) in enumerate(zip(measured.mean_C, measured.deviation_C))
    ]
    answers.print(fitted(heads, rows, drop=[], width=answers.width))
    over_all = f"over all {measured.deviation:.5g}"
    if measured.spread:
        over_all += f" (of it {measured.spread:.3g} by the encoder's posterior)"
    answer(f"{over_all}, from {measured.lowest:.4g} to {measured.highest:.4g}")
    edm, flow = measured.scale_for(EDM_DEVIATION), measured.scale_for(1.0)
    answer(f"scale for a deviation of 0.5 (EDM's sigma_data): {edm:.5g}; of 1: {flow:.5g}")
    if abs(measured.deviation * SD_SCALE / SD_DEVIATION - 1) < 0.2:
        answer(f"these look like latents of the SD autoencoder: its factor is {SD_SCALE}")


def _plain(value: Any) -> Any:
    """Return arrays as lists; what is not finite is `null`, for which JSON has no number."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    plain = value.tolist() if hasattr(value, "tolist") else value
    return [*map(_plain, plain)] if isinstance(plain, list | tuple) else plain
