"""The command that prints a sweep's batch file: Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tread_lab.cli.options import (
    DONE,
    Concurrent,
    Cpus,
    HangTimeout,
    Overrides,
    Processes,
    Root,
    SweepFile,
    SweepName,
    Tracker,
)
from tread_lab.records.lab import Lab

_BODY = Path(__file__).with_name("slurm.sh")


def slurm(
    file: SweepFile,
    overrides: Overrides = (),
    *,
    nodes: Annotated[int, "nodes of the job (1)"] = 1,
    gpus: Annotated[int, "GPUs of each node; 0: none", {"type": int, "metavar": "N"}],
    time: Annotated[str, "time of the job, as Slurm writes it: 12:00:00"],
    cores: Annotated[int | None, "CPU cores of each node (default: what its runs need)"] = None,
    gpus_per_run: Annotated[
        float | None, "GPUs per run, or a share such as 0.5 (default: 1 where nodes have GPUs)"
    ] = None,
    margin: Annotated[int, "stop so many seconds before the time is up (300)"] = 300,
    resubmit: Annotated[
        bool, "submit a new job each time, where requeueing is not allowed"
    ] = False,
    name: SweepName = None,
    tracker: Tracker = "mlflow",
    cpus: Cpus = 1,
    processes: Processes = 1,
    concurrent: Concurrent = None,
    hang_timeout: HangTimeout = None,
    root: Root = None,
) -> int:
    """Print a sweep's batch file for sbatch; its job starts again until the sweep is complete.

    Example: tread-lab submit slurm route_placement.yaml --nodes 2 --gpus 8 --time 12:00:00
    """
    import shlex
    import sys

    from tread_lab.config.load import find, load_sweep
    from tread_lab.cost.training import cost
    from tread_lab.hardware import AMPERE
    from tread_lab.sweep.expand import expand
    from tread_lab.sweep.resources import RunResources

    file_name, sweep, experiment = load_sweep(file, overrides)
    facts = {"device": {"type": "cuda", "precisions": [*AMPERE]}}
    expand(sweep, experiment, facts, lambda spec: cost(spec).train_flops)
    lab = Lab.at(root).root
    share = float(gpus > 0) if gpus_per_run is None else gpus_per_run
    resources = RunResources(cpus=cpus, gpus=share, processes=processes)
    runs = max(1, int(gpus / share)) if share else 1
    asked = [
        f"--job-name={name or file_name}",
        f"--nodes={nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={cores or runs * resources.cores:g}",
        *([f"--gres=gpu:{gpus}"] if gpus else []),
        f"--time={time}",
        "--no-requeue" if resubmit else "--requeue",
        f"--chdir={Path.cwd()}",
        "--open-mode=append",
    ]
    variables = {
        "python": sys.executable,
        "lab": lab,
        "gpus": gpus,
        "margin": margin,
        "resubmit": "yes" if resubmit else "no",
    }
    options = {
        "executor": "ray",
        "gpus": f"{share:g}",
        "device": None if share else "cpu",
        "name": name,
        "tracker": tracker,
        "cpus": cpus,
        "processes": processes,
        "concurrent": concurrent,
        "hang-timeout": hang_timeout,
        "root": lab,
    }
    driver = ["sweep", str(find(file, "sweeps", "experiments")), *overrides]
    driver += [f"--{key}={value}" for key, value in options.items() if value is not None]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {shlex.quote(word)}" for word in asked),
        "",
        *(f"{key}={shlex.quote(str(value))}" for key, value in variables.items()),
        f"sweep=({shlex.join(driver)})",
        "",
    ]
    print("\n".join(lines) + _BODY.read_text(), end="")
    return DONE
