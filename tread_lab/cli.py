"""The command line: parse the arguments, then run the command's module; `--help` is instant."""

from __future__ import annotations

import argparse
import os
import select
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import tread_lab
from tread_lab.commands.exit_codes import EXIT_CODES, INTERRUPTED
from tread_lab.specs.errors import UserError
from tread_lab.sweep.execution.executors import EXECUTORS

EXAMPLES = """examples:
  tread-lab sweep route_placement.yaml --plan        show what would run and what it would cost
  tread-lab sweep route_placement.yaml               run it; the same command resumes it
  tread-lab sweep route_placement.yaml seeds=[0,1,2] --name placement_3seeds
  tread-lab train tiny --route "2->8" train.steps=500
  tread-lab cost --model DiT-XL/2 --route "2->24" --rate 0.5
  tread-lab sweep route_placement.yaml --retry-failed     run its failed runs again
  tread-lab status                                   list the sweeps of this lab
  tread-lab status route_placement --watch           follow its runs until all have ended
  tread-lab gc                                       list the files that can be removed
  tread-lab dashboard                                follow the sweeps in the browser
  tread-lab report route_placement                   write one HTML file for a colleague
  tread-lab ui                                       compare the runs in MLflow

`key=value` sets any field of a sweep or experiment (Hydra's grammar), e.g. train.lr=3e-4."""


class _Parser(argparse.ArgumentParser):
    """A parser for which a mistake is a `UserError`: one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see `{self.prog} --help`")


class _Version(argparse.Action):
    """Print the versions of tread-lab, Python and torch; nothing is imported for it."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        try:
            torch = f"torch {version('torch')}"
        except PackageNotFoundError:
            torch = "no torch"
        python = sys.version.split()[0]
        print(f"tread-lab {tread_lab.__version__}, Python {python}, {torch}")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code, one of `EXIT_CODES`."""
    try:
        options = vars(parse(arguments))
        command = import_module(f"tread_lab.commands.{options.pop('command')}")
        return int(command.run(**options))
    except UserError as error:
        print(f"tread-lab: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("tread-lab: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        if not _reader_has_left():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _reader_has_left() -> bool:
    """Return whether nobody reads this process's output any more, as after `| head`."""
    poll = select.poll()
    for stream in (1, 2):
        poll.register(stream, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def run() -> None:
    """Run the console script."""
    sys.exit(main())


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of one command; overrides may stand before, between and after its flags.

    Raises:
        UserError: an argument is unknown, missing or malformed.
    """
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    unknown = [word for word in rest if word.startswith("-") or "=" not in word]
    if unknown or (rest and not hasattr(options, "overrides")):
        parser.error(f"unknown argument {(unknown or rest)[0]!r}")
    if rest:
        options.overrides = [*options.overrides, *rest]
    return options


def _parser() -> argparse.ArgumentParser:
    codes = "\n".join(f"  {code:<4} {meaning}" for code, meaning in EXIT_CODES.items())
    parser = _Parser(
        prog="tread-lab",
        description="What does token routing do to diffusion training, where, and at what cost?",
        epilog=f"{EXAMPLES}\n\nexit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action=_Version,
        nargs=0,
        dest=argparse.SUPPRESS,
        help="print the versions and exit",
    )
    kinds = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        subparser = kinds.add_parser(
            name,
            help=command.text,
            description=f"{command.text[0].upper()}{command.text[1:]}.",
            epilog=f"example: tread-lab {command.example}",
        )
        command.add_options(subparser)
    return parser


def _sweep(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", help="a path, or the name of a shipped file or of one in ./sweeps")
    _overrides(command)
    _root(command)
    command.add_argument("--name", help="name of the sweep (default: the name of the file)")
    command.add_argument("--plan", action="store_true", help="print the plan and stop")
    command.add_argument(
        "--device-rates",
        metavar="DEVICE",
        help="with --plan: forecast for another device by its stated rates: H200, H100, A100",
    )
    command.add_argument(
        "--extend", action="store_true", help="add what is new in the file to the stored plan"
    )
    command.add_argument(
        "--budget",
        action="append",
        default=[],
        metavar="LIMIT",
        help="flops=1e15, hours=2 or trials=20; repeat it for several limits; the same command"
        " with a larger budget continues",
    )
    command.add_argument(
        "--no-mlflow", action="store_true", help="write records only; `sync` adds them to MLflow"
    )
    command.add_argument(
        "--allow-mixed",
        action="store_true",
        help="run although code, data or weights differ from those of earlier runs",
    )
    command.add_argument(
        "--retry-failed",
        nargs="?",
        const="",
        metavar="KINDS",
        help="run all failed runs again, or only --retry-failed=KIND,KIND of exception, oom, died,"
        " hung, parent; put it last",
    )
    _json(command)
    _execution(command)


def _execution(command: argparse.ArgumentParser) -> None:
    command.add_argument("--executor", choices=tuple(EXECUTORS), default="ray")
    command.add_argument(
        "--cpus", type=_positive, metavar="N", default=1, help="CPU cores per run (1)"
    )
    command.add_argument(
        "--gpus",
        type=_not_negative,
        help="GPUs per run, or a share such as 0.5 (default: 1 if there is a GPU)",
    )
    command.add_argument("--concurrent", type=_positive, help="most runs at the same time")
    _device(command)
    _hang_timeout(command)


def _train(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "experiment", help="a path, or the name of a shipped file or of one in ./experiments"
    )
    _overrides(command)
    _root(command)
    _route(command)
    _device(command)
    _threads(command)
    command.add_argument(
        "--retry-failed", action="store_true", help="run it again if it has failed"
    )
    _hang_timeout(command)


def _evaluate(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", help="a sweep, or the start of a run's signature")
    command.add_argument(
        "evaluations", nargs="*", help="e.g. fd@5k (default: the evaluations of the plan)"
    )
    _root(command)
    _device(command)
    _threads(command)
    _json(command)


def _status(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", nargs="?", help="a sweep, or the start of a run's signature")
    _root(command)
    command.add_argument(
        "--watch", action="store_true", help="update the table until all runs have ended"
    )
    _json(command)


def _figures(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="SWEEP")
    _root(command)


def _report(command: argparse.ArgumentParser) -> None:
    _figures(command)
    command.add_argument(
        "--output", type=Path, help="the file (default: report.html beside the plan)"
    )


def _recommend(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="SWEEP", help="a sweep over placements")
    _root(command)
    command.add_argument(
        "--metric", default="gap/heldout", help="metric that the rule minimises (gap/heldout)"
    )
    command.add_argument(
        "--cheapest", action="store_true", help="the fewest FLOPs within the best set"
    )
    command.add_argument("--out", help="experiment to write (recommended.yaml beside the plan)")
    _json(command)


def _cost(command: argparse.ArgumentParser) -> None:
    command.add_argument("--model", help="e.g. DiT-XL/2 (default: the model of the experiment)")
    command.add_argument(
        "--experiment", help="a base run (default: tiny; b2_imagenet256 with --model)"
    )
    command.add_argument(
        "--device-rates", metavar="DEVICE", help="add times by stated rates: H200, H100, A100, cpu"
    )
    _overrides(command)
    _route(command)
    _json(command)


def _gc(command: argparse.ArgumentParser) -> None:
    _root(command)
    command.add_argument("--yes", action="store_true", help="remove the files that are listed")
    command.add_argument(
        "--samples",
        action="store_true",
        help="include the samples of finished evaluations; their metrics stay",
    )
    _json(command)


def _schema(command: argparse.ArgumentParser) -> None:
    command.add_argument("kind", choices=("sweep", "experiment"))


def _sync(command: argparse.ArgumentParser) -> None:
    command.add_argument("names", metavar="SWEEP", nargs="*", help="sweeps (default: all)")
    _root(command)


def _pages(port: int) -> Callable[[argparse.ArgumentParser], None]:
    """Return what adds the options of a command that serves pages, by default at `port`."""

    def add_options(command: argparse.ArgumentParser) -> None:
        _root(command)
        command.add_argument(
            "--host", default="127.0.0.1", help="address to listen on (default: loopback)"
        )
        command.add_argument("--port", type=int, default=port, help=f"port to listen on ({port})")

    return add_options


def _root(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--root", help="folder of the lab (default: TREAD_LAB_ROOT if it is set, else ./lab)"
    )


def _device(command: argparse.ArgumentParser) -> None:
    command.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one)")


def _threads(command: argparse.ArgumentParser) -> None:
    command.add_argument("--threads", type=_positive, default=1, help="CPU threads (1)")


def _hang_timeout(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--hang-timeout",
        type=_not_negative,
        metavar="SECONDS",
        help="stop and retry a run that makes no progress for so long, or for ten times as long"
        " before its first step; 0: never (default: 50 of its own steps, at least 10 minutes)",
    )


def _route(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--route", action="append", help='"2->8", "2->B-4 by rows"; repeat it for several routes'
    )
    command.add_argument(
        "--rate", type=float, help="selection rate, the routed share of tokens (0.5)"
    )


def _overrides(command: argparse.ArgumentParser) -> None:
    command.add_argument("overrides", nargs="*", metavar="key=value", help="e.g. train.steps=500")


def _json(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--json", dest="as_json", action="store_true", help="print JSON on stdout, for scripts"
    )


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number of at least 0")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


@dataclass(frozen=True)
class _Command:
    """The help, an example and the options of a command; its code is its module in `commands`."""

    text: str
    example: str
    add_options: Callable[[argparse.ArgumentParser], None]


COMMANDS: Mapping[str, _Command] = {
    "sweep": _Command("plan and run a sweep file", "sweep route_placement.yaml --plan", _sweep),
    "train": _Command("train one run", 'train tiny --route "2->8" train.steps=500', _train),
    "evaluate": _Command("measure trained runs", "evaluate route_placement fd@5k", _evaluate),
    "status": _Command("show what is done, running, failed", "status route_placement", _status),
    "figures": _Command("draw the paper's figures", "figures route_placement", _figures),
    "report": _Command("write one HTML file about a sweep", "report route_placement", _report),
    "dashboard": _Command("follow sweeps in the browser", "dashboard --port 8601", _pages(8600)),
    "recommend": _Command(
        "find a rule for routes from a placement sweep", "recommend route_placement", _recommend
    ),
    "cost": _Command("compute parameters, MACs, FLOPs, speed-up", 'cost --route "2->B-4"', _cost),
    "gc": _Command("list or remove files that nothing needs any more", "gc --yes", _gc),
    "schema": _Command(
        "print the JSON schema of sweep files, for editors", "schema sweep", _schema
    ),
    "sync": _Command("rebuild the MLflow store from the records", "sync", _sync),
    "ui": _Command("open the MLflow pages of this lab", "ui --port 5001", _pages(5000)),
}
