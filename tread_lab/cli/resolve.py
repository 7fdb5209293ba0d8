"""What options mean: whole specs for shorthands, and the device of each run."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tread_lab.config.decode import encode
from tread_lab.config.errors import UserError
from tread_lab.config.fields import run_of
from tread_lab.config.run import RunSpec
from tread_lab.config.sweep import Experiment
from tread_lab.hardware import gpus as visible_gpus
from tread_lab.sweep.resources import RunResources


def run_spec(experiment: Experiment, routes: Sequence[str] | None, rate: float | None) -> RunSpec:
    """Return the run of an experiment with other routes.

    Args:
        routes: routes such as `2->B-4`; `None` keeps those of the experiment.
        rate: the selection rate of every route; `None` keeps each route's own.

    Raises:
        UserError: the rate is outside [0, 1), or a rate is given and the run has no route.
    """
    tree = {**experiment.run, "routes": routes} if routes else dict(experiment.run)
    if rate is None:
        return run_of(tree)
    if not 0 <= rate < 1:
        raise UserError(f"--rate: must be in [0, 1), got {rate:g}. Try --rate 0.5.")
    rated = [{**encode(route), "rate": rate} for route in run_of({**tree, "then": None}).routes]
    if not rated:
        raise UserError('--rate: must have a route, got none. Try --route "2->8".')
    return run_of({**tree, "routes": rated})


def check_device(device: str | None, *, ray: bool = False) -> None:
    """Hide every GPU from this process and its children where `device` is the CPU.

    Torch's optimizers alone would open a context on the first visible one. To be called before
    CUDA is asked for devices, because CUDA reads the variable once.

    Raises:
        UserError: a launcher started several processes; or a GPU is named by its number, and Ray
            chooses the GPU of each run.
    """
    if (count := os.environ.get("WORLD_SIZE", "1")) != "1":
        raise UserError(
            f"WORLD_SIZE={count}: torchrun or mpirun started several processes; start one"
            " `tread-lab` process without them, which starts those of its runs"
        )
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    number = (device or "").removeprefix("cuda:")
    if ray and number.isdecimal():
        raise UserError(
            f"--device: must be cpu or cuda under Ray, got {device}. Try"
            f" CUDA_VISIBLE_DEVICES={number} with --device cuda."
        )


def resources_of(
    device: str | None,
    cpus: int,
    gpus: float | None,
    concurrent: int | None,
    processes: int,
    *,
    ray: bool,
) -> RunResources:
    """Return what each run of a sweep has: by default a GPU if its device or this machine has one.

    Raises:
        UserError: as `check_device`, or the numbers do not fit one another.
    """
    check_device(device, ray=ray)
    if gpus is None:
        gpus = float(bool(visible_gpus()) if device is None else device.startswith("cuda"))
    return RunResources(device, cpus, gpus, concurrent, processes)
