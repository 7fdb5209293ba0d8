"""The command line: parse, then call one function; heavy imports wait until they are needed."""

from __future__ import annotations

import argparse
import os
import select
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from tread_lab.specs.errors import UserError
from tread_lab.sweep.execution.executors import EXECUTORS

EXAMPLES = """examples:
  tread-lab sweep route_placement.yaml --plan        what would run, and what it would cost
  tread-lab sweep route_placement.yaml               run it; again: resume, or return at once
  tread-lab sweep route_placement.yaml seeds=[0,1,2] --name placement_3seeds
  tread-lab train tiny --route "2->8" train.steps=500
  tread-lab cost --model DiT-XL/2 --route "2->24" --rate 0.5
  tread-lab sweep route_placement.yaml --retry-failed     run its failed runs again
  tread-lab status                                   sweeps and runs of this lab
  tread-lab status route_placement --watch           how each run stands, until all have ended
  tread-lab gc                                       what could be removed to make room
  tread-lab dashboard                                watch them in the browser, while they run too
  tread-lab report route_placement                   one HTML file to send to a colleague
  tread-lab ui                                       compare them in MLflow

`key=value` changes any field of a sweep or experiment (Hydra's grammar), e.g. train.lr=3e-4.

exit codes:
  0    done
  1    some runs failed, or lack a measurement
  2    a mistake: the line says what to correct
  3    the disk is full or the cluster is lost; no result is, and the same command goes on
  130  stopped by Ctrl-C or SIGTERM; running trials have saved, and the same command goes on"""


class _Parser(argparse.ArgumentParser):
    """Mistakes on the command line are one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see `{self.prog} --help`")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code, as `EXAMPLES` lists them."""
    try:
        options = vars(parse(arguments))
        command = import_module(f"tread_lab.commands.{options.pop('command')}")
        return int(command.run(command.Options(**options)))
    except UserError as error:
        print(f"tread-lab: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("tread-lab: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        if not _reader_has_left():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _reader_has_left() -> bool:
    """Whether nobody reads this process's output any more, as after `| head`."""
    poll = select.poll()
    for stream in (1, 2):
        poll.register(stream, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def run() -> None:
    """The console script."""
    sys.exit(main())


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of one command; overrides may stand before, between and after its flags."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    strange = [word for word in rest if word.startswith("-") or "=" not in word]
    if strange or (rest and not hasattr(options, "overrides")):
        parser.error(f"unknown argument {(strange or rest)[0]!r}")
    if rest:
        options.overrides = [*options.overrides, *rest]
    return options


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tread-lab",
        description="What does token routing do to diffusion training, where, and at what cost?",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _sweep(
        _command(kinds, "sweep", "plan and run a sweep file", "sweep route_placement.yaml --plan")
    )
    _train(_command(kinds, "train", "train one run", 'train tiny --route "2->8" train.steps=500'))
    _evaluate(_command(kinds, "evaluate", "measure trained runs", "evaluate route_placement fd@5k"))
    status = _command(kinds, "status", "what is done, running, failed", "status route_placement")
    status.add_argument("name", nargs="?", help="a sweep or the start of a run's signature")
    status.add_argument(
        "--watch", action="store_true", help="again and again until all runs have ended"
    )
    _json(status)
    figures = _command(kinds, "figures", "draw the paper's figures", "figures route_placement")
    figures.add_argument("name", metavar="SWEEP")
    report = _command(kinds, "report", "one HTML file about a sweep", "report route_placement")
    report.add_argument("name", metavar="SWEEP")
    report.add_argument(
        "--output", type=Path, help="the file; report.html beside the plan if absent"
    )
    dashboard = _command(kinds, "dashboard", "watch sweeps in the browser", "dashboard")
    dashboard.add_argument("--host", default="127.0.0.1", help="address to listen on (loopback)")
    dashboard.add_argument("--port", type=int, default=8600)
    _recommend(_command(kinds, "recommend", "a rule for routes", "recommend route_placement"))
    _cost(_command(kinds, "cost", "parameters, MACs, FLOPs, speed-up", 'cost --route "2->B-4"'))
    gc = _command(kinds, "gc", "make room: what nothing needs any more", "gc --yes")
    gc.add_argument("--yes", action="store_true", help="remove it; else it is only listed")
    gc.add_argument(
        "--samples", action="store_true", help="samples of finished evaluations too; metrics stay"
    )
    _json(gc)
    schema = _command(kinds, "schema", "JSON schema of sweep files, for editors", "schema sweep")
    schema.add_argument("kind", choices=("sweep", "experiment"))
    sync = _command(kinds, "sync", "rebuild the MLflow store from the records", "sync")
    sync.add_argument("names", metavar="SWEEP", nargs="*", help="all sweeps where absent")
    ui = _command(kinds, "ui", "open the MLflow pages of this lab", "ui --port 5001")
    ui.add_argument("--host", default="127.0.0.1", help="address to listen on (loopback)")
    ui.add_argument("--port", type=int, default=5000)
    return parser


def _command(kinds, name: str, text: str, example: str) -> argparse.ArgumentParser:  # type: ignore[no-untyped-def]
    command: argparse.ArgumentParser = kinds.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"example: tread-lab {example}",
    )
    if name != "cost":
        command.add_argument(
            "--root", help="folder of runs and sweeps (TREAD_LAB_ROOT, else ./lab)"
        )
    return command


def _sweep(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", help="as given, else in ./sweeps, else as shipped")
    _overrides(command)
    command.add_argument("--name", help="name of the sweep; the file's where absent")
    command.add_argument("--plan", action="store_true", help="print the plan and stop")
    command.add_argument(
        "--device-rates",
        metavar="DEVICE",
        help="with --plan: times on a device that is not here, by stated rates: H200, H100, A100",
    )
    command.add_argument(
        "--extend", action="store_true", help="add what is new in the file to the stored plan"
    )
    command.add_argument(
        "--budget",
        action="append",
        default=[],
        metavar="LIMIT",
        help="flops=1e15, hours=2 or trials=20; again for more, the same command goes on later",
    )
    command.add_argument("--no-mlflow", action="store_true", help="records only; `sync` adds them")
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
        " hung, parent; write it last",
    )
    _json(command)
    _execution(command)


def _train(command: argparse.ArgumentParser) -> None:
    command.add_argument("experiment", help="as given, else in ./experiments, else as shipped")
    _overrides(command)
    _route(command)
    command.add_argument("--device", help="cpu, cuda, cuda:1, ...")
    command.add_argument("--threads", type=_positive, default=1, help="CPU threads (1)")
    command.add_argument("--retry-failed", action="store_true", help="try again if it has failed")
    _hang_timeout(command)


def _evaluate(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", help="a sweep or the start of a run's signature")
    command.add_argument("evaluations", nargs="*", help="e.g. fd@5k; those of the plan if absent")
    command.add_argument("--device", help="cpu, cuda, cuda:1, ...")
    command.add_argument("--threads", type=_positive, default=1, help="CPU threads (1)")
    _json(command)


def _recommend(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="SWEEP", help="a sweep over placements")
    command.add_argument("--metric", default="gap/heldout", help="what decides (gap/heldout)")
    command.add_argument(
        "--cheapest", action="store_true", help="the fewest FLOPs within the best set"
    )
    command.add_argument("--out", help="experiment to write (recommended.yaml in the sweep)")
    _json(command)


def _cost(command: argparse.ArgumentParser) -> None:
    command.add_argument("--model", help="e.g. DiT-XL/2; the experiment's where absent")
    command.add_argument("--experiment", help="a base run (b2_imagenet256 with --model)")
    command.add_argument(
        "--device-rates", metavar="DEVICE", help="add times by stated rates: H200, H100, A100, cpu"
    )
    _overrides(command)
    _route(command)
    _json(command)


def _execution(command: argparse.ArgumentParser) -> None:
    command.add_argument("--executor", choices=tuple(EXECUTORS), default="ray")
    command.add_argument("--cpus", type=_positive, default=1, help="CPU cores per run (1)")
    command.add_argument(
        "--gpus",
        type=_not_negative,
        default=None,
        help="share of a GPU per run (1 if there is one)",
    )
    command.add_argument("--concurrent", type=_positive, help="most runs at once")
    command.add_argument("--device", help="cpu, cuda, cuda:1, ...")
    _hang_timeout(command)


def _hang_timeout(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--hang-timeout",
        type=_not_negative,
        metavar="SECONDS",
        help="end and retry a run that makes no progress for so long; 0 never"
        ", ten times that before its first step (50 of its own steps, at least 10 minutes)",
    )


def _route(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--route", action="append", help='"2->8", "2->B-4 by rows"; again for more'
    )
    command.add_argument("--rate", type=float, help="selection rate, routed share of tokens (0.5)")


def _overrides(command: argparse.ArgumentParser) -> None:
    command.add_argument("overrides", nargs="*", metavar="key=value", help="e.g. train.steps=500")


def _json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="for scripts: JSON on stdout")


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number from 0 on")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value
