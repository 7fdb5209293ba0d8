"""The data reference command: statistics of real images as a file that metrics compare with."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tread_lab.commands.exit_codes import DONE
from tread_lab.engine.device import pick
from tread_lab.metrics.feature_space import INCEPTION
from tread_lab.metrics.inception import inception_weights, sha256
from tread_lab.metrics.requirements import check_torch_fidelity
from tread_lab.prepare.reference import open_real, write_reference
from tread_lab.screen.console import answer, say
from tread_lab.screen.data import show_steps
from tread_lab.specs.units import amount, counted


def run(
    *,
    images: Path,
    out: Path,
    size: int | None,
    limit: int | None,
    keep: int,
    batch: int,
    device: str | None,
    workers: int | None,
    skip_damaged: bool,
    as_json: bool,
) -> int:
    """Write the file; return the exit code."""
    check_torch_fidelity("data reference")
    inception_weights()  # before a million images are listed
    real, side = open_real(images, size, limit)
    say(f"{len(real.names):,} images of {len(real.classes):,} classes in {images}")
    from tread_lab.metrics.extraction import Extraction

    steps = write_reference(
        real,
        side,
        out,
        Extraction(INCEPTION, device=pick(device)),
        keep=keep,
        batch=batch,
        workers=workers or os.cpu_count() or 1,
        skip_damaged=skip_damaged,
    )
    damaged = show_steps(steps, "images").damaged
    count = len(real.names) - damaged
    kept = min(keep, count)
    if as_json:
        tree = {"file": str(out), "images": count, "stored": kept, "damaged": damaged}
        print(json.dumps({**tree, "size": side, "sha256": sha256(out)}, indent=1))
        return DONE
    if damaged:
        answer(f"{counted(damaged, 'damaged image')} left out")
    answer(
        f"{out}: statistics of {count:,} images {side}x{side}, and {kept:,} of them,"
        f" {amount(out.stat().st_size)}"
    )
    answer(f"reference: {out}")
    return DONE
