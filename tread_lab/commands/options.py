"""What every command takes: each option once, with its type, help and default; and exit codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from tread_lab.commands.declare import argument, count, not_negative, option
from tread_lab.sweep.resources import EXECUTORS

DONE = 0
UNFINISHED = 1
INTERRUPTED = 130

EXIT_CODES = {
    DONE: "done",
    UNFINISHED: "some runs failed or lack a measurement, or a data set has faults",
    2: "a mistake; the line says what to correct",
    3: "the disk is full or the cluster is lost; run the same command again to continue",
    INTERRUPTED: "stopped by Ctrl-C or SIGTERM; run the same command again to continue",
}


@dataclass(kw_only=True)
class OfLab:
    """A command that works in a lab."""

    root: str | None = option(
        "folder of the lab (default: TREAD_LAB_ROOT if it is set, else ./lab)"
    )


@dataclass(kw_only=True)
class AsJson:
    """A command whose answer scripts can read."""

    as_json: bool = option("print JSON on stdout, for scripts", False, flag="--json")


@dataclass(kw_only=True)
class Changed:
    """A command that takes overrides of a file."""

    overrides: Sequence[str] = argument("e.g. train.steps=500", nargs="*", metavar="key=value")


@dataclass(kw_only=True)
class Routed:
    """A command that takes routes in few letters."""

    route: Sequence[str] | None = option(
        '"2->8", "2->B-4 by rows"; repeat it for several routes', action="append"
    )
    rate: float | None = option("selection rate, the routed share of tokens (0.5)")


@dataclass(kw_only=True)
class OnDevice:
    """A command that computes on a device."""

    device: str | None = option("cpu, cuda, cuda:1, ... (default: a GPU if there is one)")


@dataclass(kw_only=True)
class Watched:
    """A command that trains runs."""

    hang_timeout: float | None = option(
        "seconds without a step after which a run's process ends and starts again (no limit)",
        type=not_negative,
        metavar="SECONDS",
    )


@dataclass(kw_only=True)
class Driven(Watched, OfLab, Changed):
    """A command whose driver runs a sweep file."""

    file: str = argument(
        "a path, or the name of a shipped file or of one in ./sweeps; or an experiment, with"
        " axes.train.lr=[1e-3,3e-3] and the like"
    )
    name: str | None = option("name of the sweep (default: the name of the file)")
    tracker: str = option(
        "mlflow, none, or another that accelerate knows: tensorboard, wandb, aim (mlflow)",
        "mlflow",
        metavar="NAME",
    )
    cpus: int = option("CPU cores per run, or per device of a run that has several (1)", 1)
    processes: int = option("processes on CPUs that train each run together (1)", 1)
    concurrent: int | None = option("most runs at the same time")


@dataclass(kw_only=True)
class Sweep(Driven, OnDevice, AsJson):
    """plan and run a sweep file"""

    plan: bool = option("print the plan and stop", False)
    retry_failed: bool = option("run all failed runs again", False)
    executor: str = option(default="ray", choices=EXECUTORS)
    gpus: float | None = option(
        "GPUs per run, or a share such as 0.5 (default: 1 if there is a GPU)", type=not_negative
    )


@dataclass(kw_only=True)
class Slurm(Driven):
    """print a sweep's batch file for sbatch; its job starts again until the sweep is complete"""

    nodes: int = option("nodes of the job (1)", 1)
    gpus: int = option("GPUs of each node; 0: none", required=True, type=count, metavar="N")
    time: str = option("time of the job, as Slurm writes it: 12:00:00", required=True)
    cores: int | None = option("CPU cores of each node (default: what its runs need)")
    gpus_per_run: float | None = option(
        "GPUs per run, or a share such as 0.5 (default: 1 where nodes have GPUs)",
        type=not_negative,
        metavar="GPUS",
    )
    margin: int = option("stop so many seconds before the time is up (300)", 300)
    resubmit: bool = option("submit a new job each time, where requeueing is not allowed", False)


@dataclass(kw_only=True)
class Together(OnDevice):
    """A command that trains and measures a run on several devices of this machine."""

    threads: int = option("CPU threads, of each of its processes (1)", 1)
    gpus: int | None = option("GPUs of this machine that work on a run together (1)")
    processes: int | None = option("processes on CPUs that work on a run together (1)")


@dataclass(kw_only=True)
class Train(Watched, Together, Routed, OfLab, Changed):
    """train one run"""

    experiment: str = argument("a path, or the name of a shipped file or of one in ./experiments")
    retry_failed: bool = option("run it again if it has failed", False)


@dataclass(kw_only=True)
class Evaluate(Together, AsJson, OfLab):
    """measure trained runs"""

    name: str = argument("a sweep, or the start of a run's signature")
    evaluations: Sequence[str] = argument(
        'e.g. fd@5k "fd@1k at 250, 50%%, end" "{heldout_loss: {images: 64}}" (default: the'
        " evaluations of the plan); sampler.steps=20 sampler.guidance=2 say how images are"
        " generated",
        nargs="*",
    )
    reference: str | None = option(
        "statistics to compare with, e.g. fid@50k --reference imagenet256: a name, an .npz as"
        " ADM's evaluator takes it, or heldout (default: as measured so far)",
        metavar="NAME|FILE",
    )
    plan: bool = option("print what would be measured, and stop", False)


@dataclass(kw_only=True)
class Status(AsJson, OfLab):
    """show what is done, running, failed"""

    name: str | None = argument("a sweep, or the start of a run's signature", nargs="?")
    watch: bool = option("update the table until all runs have ended", False)


@dataclass(kw_only=True)
class Rm(OfLab):
    """say what removing a sweep or a run would lose, and remove it"""

    name: str = argument("a sweep, or the start of a run's signature", metavar="SWEEP|RUN")
    yes: bool = option("remove it", False)


@dataclass(kw_only=True)
class Named(OfLab):
    """A command about one sweep."""

    name: str = argument(metavar="SWEEP")


@dataclass(kw_only=True)
class Figures(Named):
    """draw the paper's figures"""


@dataclass(kw_only=True)
class Report(Named):
    """write one HTML file about a sweep, or about two side by side"""

    other: str | None = argument("a second sweep, compared cell by cell", nargs="?")
    output: Path | None = option("the file (default: report.html beside the plan)")


@dataclass(kw_only=True)
class Served(OfLab):
    """A command that serves pages."""

    host: str = option("address to listen on (default: loopback)", "127.0.0.1")


@dataclass(kw_only=True)
class Dashboard(Served):
    """follow sweeps in the browser"""

    port: int = option("port to listen on (8600)", 8600, type=int)


@dataclass(kw_only=True)
class Cost(AsJson, Routed, Changed):
    """compute parameters, MACs, FLOPs, speed-up"""

    experiment: str | None = argument(
        "a base run (default: tiny; b2_imagenet256 with --model)", nargs="?"
    )
    model: str | None = option("e.g. DiT-XL/2 (default: the model of the experiment)")


@dataclass(kw_only=True)
class Export(OfLab):
    """write a run's EMA weights"""

    name: str = argument("a run; the first letters of its name are enough", metavar="RUN")
    out: str = argument("a new folder")
    step: int | None = option("step of a kept checkpoint (default: the last)")


@dataclass(kw_only=True)
class Reading:
    """A command that reads images."""

    limit: int | None = option("take so many images, evenly spread", metavar="N")
    workers: int | None = option("threads that read images (default: all cores)")
    skip_damaged: bool = option("leave out images that cannot be read, and count them", False)


@dataclass(kw_only=True)
class DataEncode(Reading, AsJson):
    """encode images into packed latents"""

    images: Path = argument(
        "a folder with one folder a class, a folder of webdataset tars, or a glob of tars",
        metavar="IMAGES",
    )
    out: Path = argument("folder of the data set", metavar="OUT")
    autoencoder: str = option(
        "folder or hub id of an AutoencoderKL of diffusers", required=True, metavar="PATH"
    )
    size: int = option("side of the image that is encoded (256)", 256)
    posterior: Literal["mean", "sample", "moments"] = option(
        "store the mean, a sample, or the moments, which training samples anew (mean)", "mean"
    )
    range: Literal["signed", "unit"] = option(
        "pixels that the autoencoder is fed: -1..1 (signed), or 0..1 (unit) as EDM2 does", "signed"
    )
    flips: bool = option("store the latents of the mirrored images, too", False)
    with_images: bool = option("store the cropped images, too, for REPA", False, flag="--images")
    fp32: bool = option("store fp32 (default: fp16)", False)
    captions: Path | None = option(
        "COCO's annotations, or lines with file_name and text", metavar="FILE"
    )
    batch: int = option("images encoded and written together (32)", 32)
    device: str | None = option("cpu, cuda:0, or several: cuda:0,cuda:1 (default: all GPUs)")
    licence: str | None = option("a note on the licence of the images, kept in the manifest")


@dataclass(kw_only=True)
class Latents(AsJson):
    """A command about latents on the disk."""

    path: Path = argument("a folder of latents, an .npz, or a glob of tars")
    source: str | None = option(
        "latents, shards, folder or safetensors (default: by what lies there)", metavar="NAME"
    )


@dataclass(kw_only=True)
class DataPack(Latents):
    """pack latents of any source into arrays"""

    out: Path = argument("folder of the packed arrays", metavar="OUT")
    batch: int = option("samples written at once (1024)", 1024)


@dataclass(kw_only=True)
class DataVerify(Latents):
    """find every fault of a data set"""

    classes: int | None = option("labels are 0..N-1 (default: the manifest's)")


@dataclass(kw_only=True)
class DataStats(Latents):
    """count classes, measure channels, find the scale"""

    write: bool = option("write statistics.json, for data.normalise=true", False)


@dataclass(kw_only=True)
class DataReference(Reading, OnDevice, AsJson):
    """write statistics of real images, which FID compares with"""

    images: Path = argument("a folder of images, or tars, as for data encode", metavar="IMAGES")
    out: Path = argument("the .npz to write, for ADM's evaluator too", metavar="OUT")
    size: int = option("side of the crop (256)", 256)
    keep: int = option("images stored for precision, recall and KID (10000)", 10_000)
    batch: int = option("images described together (100)", 100)


@dataclass(kw_only=True)
class Sync(OfLab):
    """rebuild the MLflow store from the records"""

    names: Sequence[str] = argument("sweeps (default: all)", metavar="SWEEP", nargs="*")


@dataclass(kw_only=True)
class Ui(Served):
    """open the MLflow pages of this lab"""

    port: int = option("port to listen on (5000)", 5000, type=int)


@dataclass(frozen=True)
class Command:
    """A command: what it takes, a module of `commands` with a function of its name, an example."""

    options: type
    module: str
    example: str

    @property
    def help(self) -> str:
        """What it does, in a few words."""
        return str(self.options.__doc__)

    def run(self, name: str, /, **options: Any) -> int:
        """Run it, import its code first; return the exit code."""
        module = import_module(f"tread_lab.commands.{self.module}")
        return int(getattr(module, function_of(name))(self.options(**options)))


def function_of(name: str) -> str:
    """Return the name of a command's function: `encode` of `data encode`."""
    return name.rpartition(" ")[2]


COMMANDS = {
    "sweep": Command(Sweep, "sweep", "sweep route_placement.yaml --plan"),
    "train": Command(Train, "train", 'train tiny --route "2->8" train.steps=500'),
    "evaluate": Command(Evaluate, "evaluate", "evaluate route_placement fd@5k"),
    "status": Command(Status, "lab", "status route_placement"),
    "figures": Command(Figures, "views", "figures route_placement"),
    "report": Command(Report, "views", "report route_placement"),
    "dashboard": Command(Dashboard, "views", "dashboard --port 8601"),
    "cost": Command(Cost, "cost", 'cost --route "2->B-4"'),
    "rm": Command(Rm, "lab", "rm route_placement --yes"),
    "export": Command(Export, "lab", "export 3f2a weights --step 50000"),
    "data encode": Command(
        DataEncode,
        "data",
        "data encode imagenet/train latents --autoencoder sd-vae-ft-ema --flips"
        " --device cuda:0,cuda:1",
    ),
    "data pack": Command(DataPack, "data", "data pack tars latents"),
    "data verify": Command(DataVerify, "data", "data verify latents --classes 1000"),
    "data stats": Command(DataStats, "data", "data stats latents --write"),
    "data reference": Command(
        DataReference, "data", "data reference imagenet/train ours.npz --size 256"
    ),
    "submit slurm": Command(
        Slurm,
        "submit",
        "submit slurm route_placement.yaml --nodes 2 --gpus 8 --time 12:00:00",
    ),
    "sync": Command(Sync, "lab", "sync"),
    "ui": Command(Ui, "views", "ui --port 5001"),
}
GROUPS = {
    "data": "make, check and measure data sets",
    "submit": "print a sweep's file for a batch system",
}
