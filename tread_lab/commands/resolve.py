"""What options mean: whole specs for shorthands, and the device of each run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tread_lab.hardware import gpus as visible_gpus
from tread_lab.specs.decode import encode
from tread_lab.specs.errors import UserError
from tread_lab.specs.fields import run_of
from tread_lab.specs.run import RunSpec
from tread_lab.specs.sweep import Experiment

if TYPE_CHECKING:
    from tread_lab.engine.ranks import Processes


def run_spec(experiment: Experiment, routes: Sequence[str] | None, rate: float | None) -> RunSpec:
    """Return the run of an experiment with other routes.

    Args:
        routes: routes such as `2->B-4`; `None` keeps those of the experiment.
        rate: the selection rate of every route; `None` keeps each route's own.

    Raises:
        UserError: the rate is outside [0, 1), or a rate is given and the run has no route.
    """
    tree = dict(experiment.run)
    if routes:
        tree["routes"] = routes
    if rate is None:
        return run_of(tree)
    if not 0 <= rate < 1:
        raise UserError(f"--rate: {rate:g} is outside [0, 1)")
    spec = run_of({**tree, "then": None})
    if not spec.routes:
        raise UserError('--rate: there is no route; add --route "2->B-4"')
    rated = [{**encode(route), "rate": rate} for route in spec.routes]
    return run_of({**tree, "routes": rated})


# What a launcher of several processes sets -> its values where there is one process alone.
_ONE_PROCESS = {
    "WORLD_SIZE": ("1",),
    "RANK": ("0",),
    "LOCAL_RANK": ("0", "-1"),
    "OMPI_COMM_WORLD_SIZE": ("1",),
    "PMI_SIZE": ("1",),
}


def check_one_device() -> None:
    """Refuse several processes of a command that a launcher has started.

    Raises:
        UserError: `torchrun` or `mpirun` started several.
    """
    for variable, alone in _ONE_PROCESS.items():
        if os.environ.get(variable, alone[0]) not in alone:
            raise UserError(
                f"{variable}={os.environ[variable]}: torchrun or mpirun started several processes;"
                " start one `tread-lab` process without them, which starts those of its runs"
            )


def together(gpus: int | None, processes: int | None, device: str | None) -> Processes:
    """Return how the processes of a run come to be: one for each GPU, or some on CPUs.

    Raises:
        UserError: this machine has not so many GPUs, or the device is of the other kind.
    """
    from tread_lab.engine.ranks import HereProcesses, OneProcess  # torch

    if processes and (gpus or (device != "cpu" and visible_gpus())):
        raise UserError("--processes: on CPUs, say --device cpu; --gpus says how many GPUs")
    if gpus and device not in (None, "cuda"):
        raise UserError(f"--device {device}: --gpus {gpus} takes the first GPUs; leave one out")
    here = len(visible_gpus()) if gpus else 0
    if gpus and gpus > here:
        raise UserError(f"--gpus: {gpus} for a run, and this machine has {here}")
    count = gpus or processes or 1
    return OneProcess() if count == 1 else HereProcesses(count)


def visible_device(device: str | None, *, ray: bool = False) -> str | None:
    """Hide the GPUs that `--device` leaves out, and return the device's name among those left.

    The setting holds for this process and for those that it starts. `cpu` hides every GPU: torch's
    optimizers alone would open a context on the first visible one. Under Ray `cuda:N` shows that
    GPU alone; a worker numbers the GPUs that Ray gave it from 0, so that the name there is `cuda`.
    To be called before anything asks CUDA for devices, because CUDA reads the variable once.

    Raises:
        UserError: a GPU of a joined cluster is named; the cluster chooses the GPU of each run.
    """
    name = device or ""
    if name == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if not ray or not name.startswith("cuda:") or not name[5:].isdecimal():
        return device
    if os.environ.get("RAY_ADDRESS"):
        raise UserError(f"--device {name}: the cluster gives each run its GPU; say --device cuda")
    index = int(name[5:])
    if index >= len(visible_gpus()):
        return device  # it is refused where devices are asked
    listed = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    whole = listed == [""]
    os.environ["CUDA_VISIBLE_DEVICES"] = str(index) if whole else listed[index].strip()
    return "cuda"


def gpus_per_run(gpus: float | None, device: str | None) -> float:
    """Return the GPUs of each run: as asked, else 1 if the device or this machine has one."""
    if gpus is not None:
        return gpus
    if device is not None:
        return float(device.startswith("cuda"))
    return float(bool(visible_gpus()))
