"""The command line: parse the arguments, then run the command's module; `--help` is instant."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import tread_lab
from tread_lab.commands.exit_codes import EXIT_CODES, INTERRUPTED
from tread_lab.specs.errors import UserError
from tread_lab.sweep.execution.cluster_heartbeat import leave
from tread_lab.sweep.execution.executors import EXECUTORS

_Option = tuple[str, dict[str, Any]]  # the arguments of `add_argument`

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
  tread-lab data encode images latents --autoencoder sd-vae-ft-ema

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
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _stop)
    try:
        options = vars(parse(arguments))
        command = import_module(f"tread_lab.commands.{options.pop('command').replace(' ', '_')}")
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


def _stop(number: int, frame: object) -> None:
    """End at once: an exception would be lost in code that catches all, imports among it."""
    leave("stopped; run the same command again to continue", code=INTERRUPTED)


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
    options.command = vars(options).pop(_NAME)  # `data encode` for a command of a group
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
    groups: dict[str, Any] = {"": kinds}
    for name, command in COMMANDS.items():
        group, _, own_name = name.rpartition(" ")
        if group not in groups:
            text = GROUPS[group]
            subparser = kinds.add_parser(group, help=text, description=_sentence(text))
            groups[group] = subparser.add_subparsers(
                dest="command", metavar="COMMAND", required=True
            )
        subparser = groups[group].add_parser(
            own_name,
            help=command.text,
            description=_sentence(command.text),
            epilog=f"example: tread-lab {command.example}",
        )
        subparser.set_defaults(**{_NAME: name})
        for option, settings in command.options:
            subparser.add_argument(option, **settings)
    return parser


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


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


def _part(text: str) -> tuple[int, int]:
    k, slash, n = text.partition("/")
    if not (slash and k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a part such as 2/8")
    return int(k), int(n)


class _Command:
    """The help, an example and the options of a command; its code is its module in `commands`."""

    def __init__(self, text: str, example: str, *options: _Option) -> None:
        self.text, self.example, self.options = text, example, options


def _option(name: str, text: str | None = None, **settings: Any) -> _Option:
    return name, {"help": text, **settings}


def _flag(name: str, text: str, **settings: Any) -> _Option:
    return _option(name, text, action="store_true", **settings)


def _count(name: str, text: str, default: int | None = None, **settings: Any) -> _Option:
    return _option(name, text, type=_positive, default=default, **settings)


def _path(name: str, text: str) -> _Option:
    """A positional argument that help shows in capitals."""
    return _option(name, text, type=Path, metavar=name.upper())


_ROOT = _option("--root", "folder of the lab (default: TREAD_LAB_ROOT if it is set, else ./lab)")
_JSON = _flag("--json", "print JSON on stdout, for scripts", dest="as_json")
_OVERRIDES = _option("overrides", "e.g. train.steps=500", nargs="*", metavar="key=value")
_SWEEP = _option("name", metavar="SWEEP")
_SWEEP_OR_RUN = "a sweep, or the start of a run's signature"
_HOST = _option("--host", "address to listen on (default: loopback)", default="127.0.0.1")
_DEVICE = _option("--device", "cpu, cuda, cuda:1, ... (default: a GPU if there is one)")
_THREADS = _count("--threads", "CPU threads (1)", 1)
_HANG_TIMEOUT = _option(
    "--hang-timeout",
    "stop and retry a run that makes no progress for so long, or for ten times as long before its"
    " first step; 0: never (default: 50 of its own steps, at least 10 minutes)",
    type=_not_negative,
    metavar="SECONDS",
)
_ROUTES = (
    _option("--route", '"2->8", "2->B-4 by rows"; repeat it for several routes', action="append"),
    _option("--rate", "selection rate, the routed share of tokens (0.5)", type=float),
)
_LATENTS = _option("path", "a folder of latents, an .npz, or a glob of tars", type=Path)
_SOURCE = _option(
    "--source",
    "latents, shards, folder or safetensors (default: by what lies there)",
    metavar="NAME",
)
_LIMIT = _count("--limit", "take so many images, evenly spread", metavar="N")
_SKIP_DAMAGED = _flag("--skip-damaged", "leave out images that cannot be read, and count them")
_WORKERS = _count("--workers", "threads that read images (default: all cores)")

_NAME = "command name"  # no option has a space in its name
GROUPS = {"data": "make, check and measure data sets"}

COMMANDS: Mapping[str, _Command] = {
    "sweep": _Command(
        "plan and run a sweep file",
        "sweep route_placement.yaml --plan",
        _option("file", "a path, or the name of a shipped file or of one in ./sweeps"),
        _OVERRIDES,
        _ROOT,
        _option("--name", "name of the sweep (default: the name of the file)"),
        _flag("--plan", "print the plan and stop"),
        _option(
            "--device-rates",
            "with --plan: plan for H200, H100 or A100 by stated rates; 8 of them: --concurrent 8",
            metavar="DEVICE",
        ),
        _option(
            "--price-per-hour",
            "with --plan: the price of one device for an hour; prints that of the sweep",
            type=float,
            metavar="PRICE",
        ),
        _flag("--extend", "add what is new in the file to the stored plan"),
        _option(
            "--budget",
            "flops=1e15, hours=2 or trials=20; repeat it for several limits; the same command"
            " with a larger budget continues",
            action="append",
            default=[],
            metavar="LIMIT",
        ),
        _flag("--no-mlflow", "write records only; `sync` adds them to MLflow"),
        _flag(
            "--allow-mixed", "run although code, data or weights differ from those of earlier runs"
        ),
        _option(
            "--retry-failed",
            "run all failed runs again, or only --retry-failed=KIND,KIND of exception, oom,"
            " died, hung, parent; put it last",
            nargs="?",
            const="",
            metavar="KINDS",
        ),
        _JSON,
        _option("--executor", choices=tuple(EXECUTORS), default="ray"),
        _count("--cpus", "CPU cores per run (1)", 1),
        _option(
            "--gpus",
            "GPUs per run, or a share such as 0.5 (default: 1 if there is a GPU)",
            type=_not_negative,
        ),
        _count("--concurrent", "most runs at the same time"),
        _DEVICE,
        _HANG_TIMEOUT,
    ),
    "train": _Command(
        "train one run",
        'train tiny --route "2->8" train.steps=500',
        _option("experiment", "a path, or the name of a shipped file or of one in ./experiments"),
        _OVERRIDES,
        _ROOT,
        *_ROUTES,
        _DEVICE,
        _THREADS,
        _flag("--retry-failed", "run it again if it has failed"),
        _HANG_TIMEOUT,
    ),
    "evaluate": _Command(
        "measure trained runs",
        "evaluate route_placement fd@5k",
        _option("name", _SWEEP_OR_RUN),
        _option(
            "evaluations",
            'e.g. fd@5k "fd@1k at 250, 50%%, end" (default: the evaluations of the plan);'
            " sampler.steps=20 sampler.guidance=2 say how images are generated",
            nargs="*",
        ),
        _option(
            "--reference",
            "statistics to compare with, e.g. fid@50k --reference imagenet256: a name, an .npz"
            " as ADM's evaluator takes it, or heldout (default: as measured so far)",
            metavar="NAME|FILE",
        ),
        _ROOT,
        _DEVICE,
        _THREADS,
        _flag("--plan", "print what would be measured, and stop"),
        _flag("--allow-mixed", "measure although decoder or weights differ from earlier ones"),
        _JSON,
    ),
    "status": _Command(
        "show what is done, running, failed",
        "status route_placement",
        _option("name", _SWEEP_OR_RUN, nargs="?"),
        _ROOT,
        _flag("--watch", "update the table until all runs have ended"),
        _JSON,
    ),
    "figures": _Command("draw the paper's figures", "figures route_placement", _SWEEP, _ROOT),
    "report": _Command(
        "write one HTML file about a sweep",
        "report route_placement",
        _SWEEP,
        _ROOT,
        _option("--output", "the file (default: report.html beside the plan)", type=Path),
    ),
    "dashboard": _Command(
        "follow sweeps in the browser",
        "dashboard --port 8601",
        _ROOT,
        _HOST,
        _option("--port", "port to listen on (8600)", type=int, default=8600),
    ),
    "recommend": _Command(
        "find a rule for routes from a placement sweep",
        "recommend route_placement",
        _SWEEP,
        _ROOT,
        _option("--metric", "metric of the rule (gap/heldout)", default="gap/heldout"),
        _flag("--cheapest", "the fewest FLOPs within the best set"),
        _flag("--equal-steps", "for a number of steps, though the sweep matches costs"),
        _option("--out", "experiment to write (recommended.yaml beside the plan)"),
        _JSON,
    ),
    "cost": _Command(
        "compute parameters, MACs, FLOPs, speed-up",
        'cost --route "2->B-4"',
        _option("--model", "e.g. DiT-XL/2 (default: the model of the experiment)"),
        _option("--experiment", "a base run (default: tiny; b2_imagenet256 with --model)"),
        _option(
            "--device-rates", "add times by stated rates: H200, H100, A100, cpu", metavar="DEVICE"
        ),
        _OVERRIDES,
        *_ROUTES,
        _JSON,
    ),
    "export": _Command(
        "write the EMA weights of a run, with a model card",
        "export 3f2a weights --step 50000",
        _option("name", "the run; the first letters of its name are enough"),
        _option("out", "a new folder"),
        _count("--step", "of a checkpoint that is kept (default: the last)"),
        _ROOT,
    ),
    "gc": _Command(
        "list or remove files that nothing needs any more",
        "gc --yes",
        _ROOT,
        _flag("--yes", "remove the files that are listed"),
        _flag("--samples", "include the samples of finished evaluations; their metrics stay"),
        _flag("--features", "include caches of encoders' features; runs make them again"),
        _JSON,
    ),
    "data encode": _Command(
        "encode images into packed latents",
        "data encode imagenet/train latents --autoencoder sd-vae-ft-ema --flips"
        " --device cuda:0,cuda:1",
        _path(
            "images",
            "a folder with one folder a class, a folder of webdataset tars, or a glob of tars",
        ),
        _path("out", "folder of the data set"),
        _option(
            "--autoencoder",
            "folder or hub id of an AutoencoderKL of diffusers",
            required=True,
            metavar="PATH",
        ),
        _count("--size", "side of the image that is encoded (256)", 256),
        _option(
            "--posterior",
            "store the mean, a sample, or the moments, which training samples anew (mean)",
            choices=("mean", "sample", "moments"),
            default="mean",
        ),
        _option(
            "--range",
            "pixels that the autoencoder is fed: -1..1 (signed), or 0..1 (unit) as EDM2 does",
            choices=("signed", "unit"),
            default="signed",
        ),
        _flag("--flips", "store the latents of the mirrored images, too"),
        _flag("--images", "store the cropped images, too, for REPA", dest="with_images"),
        _flag("--fp32", "store fp32 (default: fp16)"),
        _option(
            "--captions",
            "COCO's annotations, or lines with file_name and text",
            type=Path,
            metavar="FILE",
        ),
        _LIMIT,
        _count("--batch", "images encoded and written together (32)", 32),
        _option("--device", "cpu, cuda:0, or several: cuda:0,cuda:1 (default: all GPUs)"),
        _WORKERS,
        _option(
            "--part",
            "make part k of n, beside other processes with the other parts: 2/8",
            metavar="K/N",
            type=_part,
            default=(1, 1),
        ),
        _SKIP_DAMAGED,
        _option("--licence", "a note on the licence of the images, kept in the manifest"),
        _JSON,
    ),
    "data pack": _Command(
        "pack latents of any source into arrays",
        "data pack tars latents",
        _LATENTS,
        _path("out", "folder of the packed arrays"),
        _SOURCE,
        _count("--batch", "samples written at once (1024)", 1024),
        _JSON,
    ),
    "data verify": _Command(
        "find every fault of a data set",
        "data verify latents --classes 1000",
        _LATENTS,
        _SOURCE,
        _count("--classes", "labels are 0..N-1 (default: the manifest's)"),
        _JSON,
    ),
    "data stats": _Command(
        "count classes, measure channels, find the scale",
        "data stats latents --write",
        _LATENTS,
        _SOURCE,
        _flag("--write", "write statistics.json, for data.normalise=true"),
        _JSON,
    ),
    "data reference": _Command(
        "write statistics of real images, which FID compares with",
        "data reference imagenet/train ours.npz --size 256",
        _path("images", "a folder of images, tars, or latents encoded with --images"),
        _path("out", "the .npz to write, for ADM's evaluator too"),
        _count("--size", "side of the crop (256, or that of stored images)"),
        _LIMIT,
        _count("--keep", "images stored for precision, recall and KID (10000)", 10_000),
        _count("--batch", "images described together (100)", 100),
        _DEVICE,
        _WORKERS,
        _SKIP_DAMAGED,
        _JSON,
    ),
    "schema": _Command(
        "print the JSON schema of sweep files, for editors",
        "schema sweep",
        _option("kind", choices=("sweep", "experiment")),
    ),
    "sync": _Command(
        "rebuild the MLflow store from the records",
        "sync",
        _option("names", "sweeps (default: all)", metavar="SWEEP", nargs="*"),
        _ROOT,
    ),
    "ui": _Command(
        "open the MLflow pages of this lab",
        "ui --port 5001",
        _ROOT,
        _HOST,
        _option("--port", "port to listen on (5000)", type=int, default=5000),
    ),
}
