"""The commands that write a sweep's batch file: Slurm."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path

from tread_lab.commands.declare import words_of
from tread_lab.commands.options import DONE, Driven, Slurm
from tread_lab.config.load import find_sweep, load_sweep
from tread_lab.cost.training import cost
from tread_lab.hardware import AMPERE
from tread_lab.records.lab import Lab
from tread_lab.specs.run import RunSpec
from tread_lab.sweep.expand import expand
from tread_lab.sweep.resources import RunResources

_BODY = Path(__file__).with_name("slurm.sh")


def slurm(options: Slurm) -> int:
    """Print the batch file of a sweep, for `sbatch`; return the exit code.

    Raises:
        UserError: the sweep file has a mistake.
    """
    name, sweep, experiment = load_sweep(options.file, options.overrides)
    expand(sweep, experiment, {"device": {"type": "cuda", "precisions": [*AMPERE]}}, _flops)
    lab = Lab.at(options.root).root
    options = dataclasses.replace(options, root=str(lab))
    share = options.gpus_per_run
    gpus = float(options.gpus > 0) if share is None else share
    resources = RunResources(cpus=options.cpus, gpus=gpus, processes=options.processes)
    runs = max(1, int(options.gpus / gpus)) if gpus else 1
    asked = [
        f"--job-name={options.name or name}",
        f"--nodes={options.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={options.cores or runs * resources.cores:g}",
        *([f"--gres=gpu:{options.gpus}"] if options.gpus else []),
        f"--time={options.time}",
        "--no-requeue" if options.resubmit else "--requeue",
        f"--chdir={Path.cwd()}",
        "--open-mode=append",
    ]
    variables = {
        "python": sys.executable,
        "lab": lab,
        "gpus": options.gpus,
        "margin": options.margin,
        "resubmit": "yes" if options.resubmit else "no",
    }
    driver = ["sweep", str(find_sweep(options.file)), *options.overrides, "--executor=ray"]
    driver += [f"--gpus={gpus:g}"] + ([] if gpus else ["--device=cpu"])
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {shlex.quote(word)}" for word in asked),
        "",
        *(f"{key}={shlex.quote(str(value))}" for key, value in variables.items()),
        f"sweep=({shlex.join(driver + words_of(options, Driven))})",
        "",
    ]
    print("\n".join(lines) + _BODY.read_text(), end="")
    return DONE


def _flops(spec: RunSpec) -> float:
    return cost(spec).train_flops
