"""Options of commands: signatures for argparse, shared options and their meaning, exit codes.

A parameter is `name: Annotated[type, help, settings of add_argument] = default`: positional, or an
option where it is keyword-only.
"""

from __future__ import annotations

import argparse
import inspect
import os
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from tread_lab.config.decode import encode
from tread_lab.config.errors import UserError
from tread_lab.config.fields import run_of
from tread_lab.config.run import RunSpec
from tread_lab.config.sweep import Experiment

DONE = 0
UNFINISHED = 1
INTERRUPTED = 130

EXIT_CODES = {
    DONE: "done",
    UNFINISHED: "failed runs, missing evaluations or a faulty data set",
    2: "an error in the command or a file; one line names the field",
    3: "disk full or cluster lost; run the same command again to continue",
    INTERRUPTED: "stopped by Ctrl-C or SIGTERM; run the same command again to continue",
}


def not_negative(text: str) -> float:
    """Read a finite number of at least 0."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number of at least 0")
    return value


def positive(text: str) -> int:
    """Read a count of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


Root = Annotated[str | None, "folder of the lab (default: TREAD_LAB_ROOT if it is set, else ./lab)"]
AsJson = Annotated[bool, "print JSON on stdout, for scripts", {"flag": "--json"}]
Overrides = Annotated[Sequence[str], "e.g. train.steps=500", {"nargs": "*", "metavar": "key=value"}]
Routes = Annotated[
    Sequence[str] | None, '"2->8", "2->B-4 by rows"; repeat it for several routes',
    {"action": "append"},
]  # fmt: skip
Rate = Annotated[float | None, "selection rate, the routed share of tokens (0.5)"]
Device = Annotated[str | None, "cpu, cuda, cuda:1, ... (default: a GPU if there is one)"]
HangTimeout = Annotated[
    float | None,
    "seconds without a step after which a run's process ends and starts again (no limit)",
    {"metavar": "SECONDS"},
]
SweepFile = Annotated[
    str,
    "a path, or the name of a shipped file or of one in ./sweeps; or an experiment, with"
    " axes.train.lr=[1e-3,3e-3] and the like",
]
SweepName = Annotated[str | None, "name of the sweep (default: the name of the file)"]
Tracker = Annotated[
    str,
    "mlflow, none, or a tracker of accelerate: tensorboard, wandb, aim (mlflow)",
    {"metavar": "NAME"},
]
Cpus = Annotated[int, "CPU cores per run, or per device of a run that has several (1)"]
Processes = Annotated[int, "CPU processes per run (1)"]
Concurrent = Annotated[int | None, "maximum of concurrent runs"]
Threads = Annotated[int, "CPU threads, of each of its processes (1)"]
GpusTogether = Annotated[int | None, "GPUs of this machine to use together (1)"]
ProcessesTogether = Annotated[int | None, "CPU processes to use together (1)"]
OneSweep = Annotated[str, "a sweep", {"metavar": "SWEEP"}]
Host = Annotated[str, "address to listen on (default: loopback)"]
Limit = Annotated[int | None, "use N evenly spaced images", {"metavar": "N"}]
Readers = Annotated[int, "threads that read images (default: all cores)"]
SkipDamaged = Annotated[bool, "skip and count unreadable images"]
Images = Annotated[
    Path, "a folder with one folder a class, a folder of webdataset tars, or a glob of tars",
    {"metavar": "IMAGES"},
]  # fmt: skip
Latents = Annotated[Path, "a folder of latents, an .npz, or a glob of tars"]
Source = Annotated[
    str | None, "latents, shards, folder or safetensors (default: by the files)",
    {"metavar": "NAME"},
]  # fmt: skip


def arguments(command: Callable[..., int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each argument of a command, and its settings of `add_argument`."""
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        hint, text, *more = typing.get_args(parameter.annotation)
        settings = {"help": text, **_typed(hint), **(more[0] if more else {})}
        name, required = parameter.name, parameter.default is parameter.empty
        if not required:
            settings["default"] = parameter.default
        flag = settings.pop("flag", f"--{name.replace('_', '-')}")
        if parameter.kind is parameter.KEYWORD_ONLY:
            yield flag, {**settings, "dest": name, "required": required}
        else:
            yield name, settings if required else {"nargs": "?", **settings}


def _typed(hint: Any) -> dict[str, Any]:
    """Return what the type of a parameter says of its argument."""
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    if hint is bool:
        return {"action": "store_true"}
    if typing.get_origin(hint) is Literal:
        return {"choices": typing.get_args(hint)}
    read: dict[Any, Callable[[str], Any]] = {int: positive, float: not_negative, Path: Path}
    return {"type": read[hint]} if hint in read else {}


def routed(routes: Sequence[str] | None, overrides: Sequence[str]) -> list[str]:
    """Return the routes of `--route` as overrides, followed by the other overrides."""
    return [f"routes=[{', '.join(routes)}]", *overrides] if routes else [*overrides]


def run_spec(experiment: Experiment, rate: float | None) -> RunSpec:
    """Return the run of an experiment.

    Args:
        rate: the selection rate of every route; `None` keeps each route's own.

    Raises:
        UserError: the rate is outside [0, 1), or the run has no route.
    """
    tree = dict(experiment.run)
    if rate is None:
        return run_of(tree)
    if not 0 <= rate < 1:
        raise UserError(f"--rate: must be in [0, 1), got {rate:g}. Try --rate 0.5.")
    rated = [{**encode(route), "rate": rate} for route in run_of({**tree, "then": None}).routes]
    if not rated:
        raise UserError('--rate: must have a route, got none. Try --route "2->8".')
    return run_of({**tree, "routes": rated})


def check_device(device: str | None, *, ray: bool = False) -> None:
    """Hide all GPUs from this process and its children if `device` is the CPU.

    Torch's optimizers open a context on the first visible GPU. Call before any CUDA query, because
    CUDA reads the variable once.

    Raises:
        UserError: a launcher started several processes, or a GPU is named by number under Ray.
    """
    if (count := os.environ.get("WORLD_SIZE", "1")) != "1":
        raise UserError(
            f"WORLD_SIZE: must be 1, got {count}. Try starting `tread-lab` once with --gpus"
            f" {count}, without torchrun or mpirun."
        )
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    number = (device or "").removeprefix("cuda:")
    if ray and number.isdecimal():
        raise UserError(
            f"--device: must be cpu or cuda under Ray, got {device}. Try"
            f" CUDA_VISIBLE_DEVICES={number} with --device cuda."
        )
