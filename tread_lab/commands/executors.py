"""What each run gets of a machine, as the options say, and what is refused."""

from __future__ import annotations

import os
from argparse import Namespace

from tread_lab.specs.errors import UserError
from tread_lab.sweep.execution.executors import Share

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


def share_of(options: Namespace) -> Share:
    """What each run gets, as the options say.

    Raises:
        UserError: the device named and the GPUs asked for contradict each other.
    """
    return Share(options.device, options.cpus, _gpus_of(options), options.concurrent)


def _gpus_of(options: Namespace) -> float:
    """GPUs per run: as asked, else one if the user names it or this machine has one."""
    if options.gpus is not None:
        return float(options.gpus)
    if options.device is not None:
        return float(options.device.startswith("cuda"))
    import torch

    return float(torch.cuda.is_available())
