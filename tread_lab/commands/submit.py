"""The commands that submit a sweep to a batch system: Slurm."""

from __future__ import annotations

import dataclasses
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tread_lab.commands.declare import words_of
from tread_lab.commands.mlflow_view import check_trackers
from tread_lab.commands.options import DONE, Driven, Slurm
from tread_lab.config.load import find_sweep, load_sweep
from tread_lab.records.durable import write_text
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import Unavailable, UserError
from tread_lab.sweep.execution.early_stopping import EarlyStopping
from tread_lab.sweep.execution.executors import TrialResources
from tread_lab.sweep.plan.devices import Devices
from tread_lab.sweep.plan.forecast import TrainSeconds
from tread_lab.sweep.plan.plan import make_plan, with_whole_parents
from tread_lab.sweep.plan.preflight import check_extensions, check_guided, check_shares
from tread_lab.terminal.console import say, show_pairs

_BODY = Path(__file__).with_name("slurm.sh")
_PATIENCE = 600  # seconds for all nodes to join
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def slurm(options: Slurm) -> int:
    """Write the batch file of a sweep, and submit it; return the exit code."""
    lab = Lab.at(options.root)
    options = dataclasses.replace(options, root=str(lab.root))
    resources, cores = _shape(options)
    name = _check(options, lab, resources)
    folder = lab.sweep(name).path
    file = folder / "slurm.sbatch"
    text = _text(options, name, file, resources, cores)
    if options.dry_run:
        print(text, end="")
        return DONE
    lab.check_writable()
    folder.mkdir(parents=True, exist_ok=True)
    _write(file, text)
    job = _submit(file)
    again = "a new job follows" if options.resubmit else "the job is requeued"
    show_pairs(
        [
            ("job", f"{job}: {name} on {options.nodes} nodes, {options.time} at a time"),
            ("", f"{again} until the sweep is complete; `scancel {job}` ends that"),
            ("file", f"{file} (edit it, then `sbatch` submits it)"),
            ("log", str(folder / f"slurm-{job}.out")),
        ]
    )
    return DONE


def _shape(options: Slurm) -> tuple[TrialResources, int]:
    """Return what a run gets, and the CPU cores of a node.

    Raises:
        UserError: a node has no room for a run.
    """
    share = options.gpus_per_run
    gpus = float(options.gpus > 0) if share is None else share
    device = None if gpus else "cpu"
    counts = (options.concurrent, options.processes)
    resources = TrialResources(device, options.cpus, gpus, *counts)
    runs = max(1, int(options.gpus / gpus)) if gpus else 1
    cores = options.cores or runs * int(resources.of_run["cpu"])
    if not resources.slots(cores, options.gpus):
        raise UserError(
            f"a run needs {resources.of_run['cpu']:g} CPU cores and {gpus:g} GPUs, and a node has"
            f" {cores} and {options.gpus}: see --cores and --gpus (of a node), --cpus,"
            " --gpus-per-run and --processes (of a run)"
        )
    return resources, cores


def _check(options: Slurm, lab: Lab, resources: TrialResources) -> str:
    """Check the sweep file as far as that can be done without the nodes; return the sweep's name.

    Raises:
        UserError: it has a mistake.
    """
    check_trackers(options)
    name, spec, experiment = load_sweep(options.file, options.changes)
    spec, experiment = with_whole_parents(spec, lab), with_whole_parents(experiment, lab)
    gpus = resources.gpus > 0
    rates = "H100" if gpus else "cpu"  # stands for a device that is not here
    devices = Devices.stated(rates, gpus=1, concurrent=None) if gpus else Devices.here("cpu")
    name = options.name or name
    seconds = TrainSeconds(lab, devices, rates)
    plan = make_plan(name, spec, experiment, devices.names(), seconds)
    check_shares(plan.possible_tasks, resources.devices)
    check_extensions(plan.possible_tasks)
    check_guided(lab, plan.possible_tasks)
    EarlyStopping.of(plan, lab)  # refuses what it cannot judge
    return name


def _text(options: Slurm, name: str, file: Path, resources: TrialResources, cores: int) -> str:
    """Return the batch file: its options, what is of this sweep, and the body that all share."""
    seconds = _seconds(options.time)
    if not 0 < options.margin < seconds:
        raise UserError(f"--margin: {options.margin} s of {seconds} s; checkpoints need a part")
    asked = [
        f"--job-name={name}",
        f"--nodes={options.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={cores}",
        *([f"--gres=gpu:{options.gpus}"] if options.gpus else []),
        f"--time={options.time}",
        "--no-requeue" if options.resubmit else "--requeue",
        f"--chdir={Path.cwd()}",
        f"--output={str(file.parent).replace('%', '%%')}/slurm-%j.out",
        "--open-mode=append",
    ]
    variables = {
        "python": sys.executable,
        "file": str(file),
        "seconds": seconds,
        "margin": options.margin,
        "patience": min(_PATIENCE, seconds - options.margin),
        "cores": cores,
        "gpus": options.gpus,
        "resubmit": "yes" if options.resubmit else "no",
    }
    lines = [
        "#!/bin/bash",
        f"# The sweep {name!r} as a job of Slurm's, by `tread-lab submit slurm`. To change it, edit"
        " this file and `sbatch` it.",
        *(f"#SBATCH {shlex.quote(word)}" for word in asked),
        *(f"#SBATCH {line}" for line in _passed(options.sbatch)),
        "",
        *_assignments(variables),
        f"sweep=({shlex.join(_driver(options, resources))})",
        "",
    ]
    return "\n".join(lines) + _BODY.read_text()


def _assignments(variables: Mapping[str, object]) -> Iterator[str]:
    notes = {
        "seconds": "of the job, where Slurm does not tell when it ends",
        "margin": "seconds before the end at which the sweep is stopped",
        "patience": "seconds for all nodes to join",
        "resubmit": "yes: a new job follows; no: this one is requeued",
    }
    for name, value in variables.items():
        note = f" # {notes[name]}" if name in notes else ""
        yield f"{name}={shlex.quote(str(value))}{note}"


def _driver(options: Slurm, resources: TrialResources) -> list[str]:
    """Return the words after `tread-lab` that the job runs."""
    file = find_sweep(options.file)
    words = ["sweep", str(file), *options.overrides, "--executor=ray"]
    words += [f"--gpus={resources.gpus:g}"] + ([] if resources.gpus else ["--device=cpu"])
    return words + words_of(options, Driven)


def _passed(words: Sequence[str]) -> list[str]:
    """Return the lines of options for sbatch, each with its value.

    Raises:
        UserError: a word is no option of sbatch.
    """
    lines: list[str] = []
    for word in words:
        if "\n" in word or not (lines or word.startswith("-")):
            raise UserError(f"{word!r}: after `--` come options of sbatch, such as --partition=gpu")
        if word.startswith("-"):
            lines.append(shlex.quote(word))
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return lines


def _seconds(text: str) -> int:
    """Read a time as Slurm does.

    Raises:
        UserError: it is none.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise UserError(f"--time: {text!r} is no time of Slurm's, such as 12:00:00 or 2-00:00:00")
    days, first, *rest = (int(part) if part else None for part in match.groups())
    given = [first or 0, *(part for part in rest if part is not None)]
    if days is not None:
        units = [3600, 60, 1]
    else:
        units = {1: [60], 2: [60, 1], 3: [3600, 60, 1]}[len(given)]
    return (days or 0) * 86400 + sum(n * unit for n, unit in zip(given, units, strict=False))


def _write(file: Path, text: str) -> None:
    """Write the batch file; a former one that is different stays beside it."""
    if file.exists() and file.read_text() != text:
        former = file.with_name(f"{file.name}.former")
        file.replace(former)
        say(f"the batch file has changed; the former one is {former}")
    write_text(file, text)


def _submit(file: Path) -> str:
    """Submit a batch file; return the number of its job.

    Raises:
        UserError: sbatch refuses it.
        Unavailable: there is no sbatch here.
    """
    try:
        words = ["sbatch", "--parsable", str(file)]
        answer = subprocess.run(words, capture_output=True, text=True)
    except FileNotFoundError:
        raise Unavailable(
            f"no `sbatch` on PATH: Slurm's login nodes have it; {file} is what it would get"
        ) from None
    if answer.returncode:
        said = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
        raise UserError(f"{'; '.join(said)}; {file} is what sbatch refused")
    return answer.stdout.strip().partition(";")[0]
