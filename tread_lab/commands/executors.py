"""Where runs go, as the options say: which executor, how many at once, on how much of a device."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import Any

from tread_lab.spec.errors import UserError


def executor(options: Namespace, early: Any = None) -> Any:
    """The executor that the options name, with their limits."""
    from tread_lab.sweep.execute import InlineExecutor

    if options.executor == "inline":
        return InlineExecutor(
            device=options.device, threads=options.cpus, hang_timeout=options.hang_timeout
        )
    from tread_lab.sweep.ray_executor import RayExecutor

    return RayExecutor(
        device=options.device,
        cpus=options.cpus,
        gpus=gpus_of(options),
        concurrent=options.concurrent,
        hang_timeout=options.hang_timeout,
        early=early,
    )


def _check_share(options: Namespace) -> None:
    import torch

    have = {"cpus": os.cpu_count() or 1, "gpus": torch.cuda.device_count()}
    for what, asked in (("cpus", options.cpus), ("gpus", gpus_of(options))):
        if asked > have[what]:
            raise UserError(f"--{what}: {asked:g} for a run, and this machine has {have[what]}")


def gpus_of(options: Namespace) -> float:
    """GPUs per run: as asked, else one where there is one and the CPU was not asked for."""
    if options.gpus is not None:
        return float(options.gpus)
    if options.device == "cpu":
        return 0.0
    import torch

    return 1.0 if torch.cuda.is_available() else 0.0


def lanes_of(options: Namespace) -> int:
    """How many runs go at once on this machine.

    Raises:
        UserError: a run is to have more of it than there is; a cluster may have more.
    """
    if options.executor == "inline":
        return 1
    if "RAY_ADDRESS" not in os.environ:
        _check_share(options)
    import torch

    gpus = gpus_of(options)
    places = torch.cuda.device_count() / gpus if gpus else (os.cpu_count() or 1) / options.cpus
    return max(1, min(int(places), options.concurrent or int(places)))


def packed(options: Namespace) -> int:
    """How many runs share one device: a GPU given in parts, or this machine's CPU."""
    gpus = gpus_of(options)
    return lanes_of(options) if not gpus else max(1, int(1 / gpus))
