"""The command line: parse the arguments, then import and run the command they name."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import tread_lab
from tread_lab.cli.options import EXIT_CODES, INTERRUPTED, arguments
from tread_lab.config.errors import UserError

# Flags of other tools -> what does the same here.
_HINTS = {
    **dict.fromkeys(("-m", "--multirun"), "the same without it: commas alone make an axis"),
    **dict.fromkeys(
        ("--config", "--config-name", "-c", "-f"), "the file alone: tread-lab sweep FILE"
    ),
    **dict.fromkeys(("--lr", "--learning-rate", "--learning_rate"), "train.lr=1e-3"),
    **dict.fromkeys(("--batch-size", "--batch_size", "--batch"), "train.batch=256"),
    **dict.fromkeys(("--resume", "--restore", "--continue"), "the same command, which continues"),
    **dict.fromkeys(("--dry-run", "--dryrun", "--cfg"), "--plan"),
    **dict.fromkeys(("--count", "--n-trials", "--num-samples"), "search.trials=20"),
    **dict.fromkeys(
        ("--epochs", "--steps", "--max_steps", "--num_train_epochs"),
        "train.steps=N, in optimizer steps",
    ),
    **dict.fromkeys(("--bf16", "--amp", "--mixed_precision"), "precision=bf16"),
    "--fp16": "precision=fp16",
    "--seed": "seeds=[0,1]",
}
_NAME = "command name"  # no option has a space in its name

COMMANDS: Mapping[str, tuple[str, str]] = {  # the module of each, and its help
    "sweep": ("launch", "Plan and run a sweep file"),
    "train": ("train_and_evaluate", "Train and evaluate one run, its parents first"),
    "evaluate": ("train_and_evaluate", "Evaluate trained runs"),
    "status": ("commands", "Show completed, running and failed runs"),
    "figures": ("commands", "Draw the paper's figures, and print their paths"),
    "report": ("commands", "Write one HTML file about a sweep, or about two side by side"),
    "dashboard": ("commands", "Follow sweeps in the browser"),
    "ui": ("commands", "Open the MLflow pages of this lab"),
    "sync": ("commands", "Rebuild the MLflow store from the records"),
    "cost": ("commands", "Compute parameters, MACs, FLOPs, speed-up"),
    "data encode": ("data_commands", "Encode images into packed latents"),
    "data pack": ("data_commands", "Pack latents of any source into arrays"),
    "data verify": ("data_commands", "Check a data set, one line per fault"),
    "data stats": ("data_commands", "Print classes, channel statistics and the scale"),
    "data reference": (
        "data_commands",
        "Write statistics of real images, which FID compares with",
    ),
    "export": ("commands", "Write a run's EMA weights"),
    "submit slurm": (
        "commands",
        "Print a sweep's batch file for sbatch; its job starts again until the sweep is complete",
    ),
    "rm": ("commands", "Remove a sweep or a run (dry run unless --yes)"),
}
GROUPS = {
    "data": "Make, check and measure data sets",
    "submit": "Print a sweep's file for a batch system",
}

EXAMPLES = """examples:
  tread-lab sweep route_placement.yaml --plan        show what would run and what it would cost
  tread-lab sweep route_placement.yaml               run it; the same command resumes it
  tread-lab sweep route_placement.yaml seeds=[0,1,2] --name placement_3seeds
  tread-lab sweep tiny 'route=2->8,2->10' seeds=0..2    a sweep of an experiment
  tread-lab submit slurm route_placement.yaml --gpus 8 --time 12:00:00
  tread-lab train tiny --route "2->8" train.steps=500
  tread-lab cost --model DiT-XL/2 --route "2->24" --rate 0.5
  tread-lab sweep route_placement.yaml --retry-failed     run its failed runs again
  tread-lab status                                   list the sweeps of this lab
  tread-lab status route_placement --watch           follow its runs until all have ended
  tread-lab dashboard                                follow the sweeps in the browser
  tread-lab report route_placement                   write one HTML file for a colleague
  tread-lab ui                                       compare the runs in MLflow
  tread-lab data encode images latents --autoencoder sd-vae-ft-ema

`key=value` sets any field of a sweep or experiment (the value is YAML), e.g. train.lr=3e-4."""


class _Parser(argparse.ArgumentParser):
    """A parser for which a mistake is a `UserError`: one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see `{self.prog} --help`")


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code, one of `EXIT_CODES`."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _stop)
    try:
        options = vars(parse(words))
        return command(options.pop("command"))(**options)
    except UserError as error:
        for line in error.args:
            print(f"tread-lab: {line}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("tread-lab: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader has left, as after `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _stop(number: int, frame: object) -> None:
    """End at once: an exception would be lost in code that catches all, imports among it."""
    os.write(2, b"\ntread-lab: stopped; run the same command again to continue\n")
    os._exit(INTERRUPTED)


def run() -> None:
    """Run the console script; warnings are printed in one line, without source location."""
    warnings.formatwarning = lambda message, *_, **__: f"tread-lab: {message}\n"
    sys.exit(main())


def command(name: str) -> Callable[..., int]:
    """Import the function of a command, named by the last word of the command."""
    module = importlib.import_module(f"tread_lab.cli.{COMMANDS[name][0]}")
    found: Callable[..., int] = getattr(module, name.split()[-1])
    return found


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of one command; overrides may appear anywhere among its flags.

    Raises:
        UserError: an argument is unknown, missing or malformed.
    """
    words = sys.argv[1:] if words is None else words
    parser = _parser(words)
    options, rest = parser.parse_known_args(words)
    options.command = vars(options).pop(_NAME)  # `data encode` for a command of a group
    unknown = [word for word in rest if word.startswith("-") or "=" not in word]
    if unknown or (rest and not hasattr(options, "overrides")):
        flag = (unknown or rest)[0].partition("=")[0]
        if flag in _HINTS:
            raise UserError(f"{flag}: unknown argument. Try {_HINTS[flag]}.")
        parser.error(f"unknown argument {(unknown or rest)[0]!r}")
    if rest:
        options.overrides = [*options.overrides, *rest]
    return options


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of all commands, with the arguments of the one that the words begin with.

    The others are not imported.
    """
    codes = "\n".join(f"  {code:<4} {meaning}" for code, meaning in EXIT_CODES.items())
    parser = _Parser(
        prog="tread-lab",
        description="What does token routing do to diffusion training, where, and at what cost?",
        epilog=f"{EXAMPLES}\n\nexit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    python = sys.version.split()[0]
    text = f"tread-lab {tread_lab.__version__}, Python {python}"
    parser.add_argument("--version", action="version", version=text)
    kinds = parser.add_subparsers(metavar="COMMAND", required=True)
    groups: dict[str, Any] = {"": kinds}
    for name, (_, text) in COMMANDS.items():
        group_name, _, own_name = name.rpartition(" ")
        if group_name not in groups:
            about = GROUPS[group_name]
            group = kinds.add_parser(group_name, help=about, description=about)
            groups[group_name] = group.add_subparsers(metavar="COMMAND", required=True)
        subparser = groups[group_name].add_parser(own_name, help=text, description=f"{text}.")
        subparser.set_defaults(**{_NAME: name})
        if name.split() == list(words[: len(name.split())]):
            asked = command(name)
            _, _, subparser.epilog = inspect.cleandoc(asked.__doc__ or "").partition("\n\n")
            for argument, settings in arguments(asked):
                subparser.add_argument(argument, **settings)
    return parser
