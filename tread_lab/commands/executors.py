"""Where runs go, as the options say: which executor, how many at once, on how much of a device."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import Any

from tread_lab.spec.errors import UserError

# What a launcher of several processes sets -> its values where there is one process alone.
_ONE_PROCESS = {
    "WORLD_SIZE": ("1",),
    "RANK": ("0",),
    "LOCAL_RANK": ("0", "-1"),
    "OMPI_COMM_WORLD_SIZE": ("1",),
    "PMI_SIZE": ("1",),
}


def check_one_device(options: Namespace) -> None:
    """Refuse to spread one run over several devices or processes, which nothing here can do.

    Raises:
        UserError: `--gpus` is above 1, or `torchrun` or `mpirun` started several processes.
    """
    gpus = getattr(options, "gpus", None) or 0.0
    if gpus > 1:
        raise UserError(
            f"--gpus: {gpus:g} for a run, and a run trains on one device; give 1, or a part of one"
            " such as 0.5"
        )
    for variable, alone in _ONE_PROCESS.items():
        if os.environ.get(variable, alone[0]) not in alone:
            raise UserError(
                f"{variable}={os.environ[variable]}: torchrun or mpirun started several processes,"
                " and a run trains on one device; start one `tread-lab` process without them, which"
                " trains the runs of a sweep beside each other"
            )


def show_gpus(options: Namespace) -> None:
    """Hide the GPUs that `--device` leaves out from this process and those that it starts.

    `cpu` hides all: torch's optimizers alone would open a context on the first GPU that is visible.
    Under Ray `cuda:N` shows that one. A worker sees the GPUs that Ray gave it, numbered from 0, so
    that `cuda` is the name there. To be called before anything asks CUDA for devices, which reads
    the variable once.

    Raises:
        UserError: a cluster is joined, whose GPUs are not ours to choose.
    """
    name = options.device or ""
    if name == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    ray = getattr(options, "executor", "inline") == "ray"
    if not ray or not name.startswith("cuda:") or not name[5:].isdecimal():
        return
    if "RAY_ADDRESS" in os.environ:
        raise UserError(f"--device {name}: the cluster gives each run its GPU; say --device cuda")
    import torch

    index, count = int(name[5:]), torch.cuda.device_count()
    if index < count:  # else `pick` says how many there are
        listed = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        whole = listed == [""]
        os.environ["CUDA_VISIBLE_DEVICES"] = str(index) if whole else listed[index].strip()
        options.device = "cuda"


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
