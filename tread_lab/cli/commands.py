"""The commands that train and measure nothing; each imports what it needs while it runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tread_lab.cli.options import (
    DONE,
    AsJson,
    Concurrent,
    Cpus,
    HangTimeout,
    Host,
    OneSweep,
    Overrides,
    Processes,
    Rate,
    Root,
    Routes,
    SweepFile,
    SweepName,
    Tracker,
    routed,
    run_spec,
)
from tread_lab.config.errors import UserError
from tread_lab.records.lab import Lab

_SLURM = Path(__file__).with_name("slurm.sh")
Named = "a sweep, or the start of a run's signature"


def status(
    name: Annotated[str | None, Named] = None,
    *,
    watch: Annotated[bool, "update the table until all runs have ended"] = False,
    as_json: AsJson = False,
    root: Root = None,
) -> int:
    """Show completed, running and failed runs.

    Example: tread-lab status route_placement
    """
    from tread_lab.cli.show_status import show_lab, show_run, show_sweep, watch_sweep
    from tread_lab.records.sweep_folder import SweepFolder

    lab = Lab.existing(root)
    if watch and (name is None or as_json):
        raise UserError("--watch: requires the name of one sweep, without --json")
    if name is None:
        show_lab(lab, as_json=as_json)
    elif watch:
        watch_sweep(lab, lab.known_sweep(name).name)
    elif isinstance(folder := lab.known(name), SweepFolder):
        show_sweep(lab, folder.name, as_json=as_json)
    else:
        show_run(folder, as_json=as_json)
    return DONE


def rm(
    name: Annotated[str, Named, {"metavar": "SWEEP|RUN"}],
    *,
    yes: Annotated[bool, "remove it"] = False,
    root: Root = None,
) -> int:
    """Remove a sweep or a run (dry run unless --yes).

    Example: tread-lab rm route_placement --yes
    """
    from tread_lab.sweep.removal import removal_of, remove

    lab = Lab.existing(root)
    whole = lab.known(name).name
    if yes and name != whole:  # a sweep of that name may have been removed just now
        raise UserError(f"--yes: removing a run requires its full name, {whole}")
    removal = removal_of(lab, whole)
    print(*removal.lines(), sep="\n")
    if yes:
        remove(removal)
    print("removed; the MLflow copy remains" if yes else "--yes removes this for good")
    return DONE


def sync(
    names: Annotated[
        Sequence[str], "sweeps (default: all)", {"metavar": "SWEEP", "nargs": "*"}
    ] = (),
    *,
    root: Root = None,
) -> int:
    """Rebuild the MLflow store from the records.

    Example: tread-lab sync
    """
    from tread_lab.config.units import counts_text
    from tread_lab.tracking.mlflow_tracker import MlflowTracker

    lab = Lab.existing(root)
    sweeps = [lab.known_sweep(name).name for name in names] or lab.sweeps()
    if not sweeps:
        raise UserError(
            f"--root: must contain a sweep, got none in {lab.root}. Try `tread-lab sweep`."
        )
    tracker = MlflowTracker(lab, lab.mlflow_uri)
    for name in sweeps:
        print(f"{name}: {counts_text(tracker.sync(name)) or 'no run has begun'}")
    return DONE


def figures(name: OneSweep, *, root: Root = None) -> int:
    """Draw the paper's figures, and print their paths.

    Example: tread-lab figures route_placement
    """
    from tread_lab.analysis.figures.catalogue import write_figures

    lab = Lab.existing(root)
    for path in write_figures(lab, lab.known_sweep(name).name):
        print(path)
    return DONE


def report(
    name: OneSweep,
    other: Annotated[str | None, "a second sweep, compared cell by cell"] = None,
    *,
    output: Annotated[Path | None, "the file (default: report.html beside the plan)"] = None,
    root: Root = None,
) -> int:
    """Write one HTML file about a sweep, or about two side by side.

    Example: tread-lab report route_placement
    """
    from tread_lab.dashboards.contents import page_file, versus_file
    from tread_lab.records.durable import write_text

    lab = Lab.existing(root)
    folder = lab.known_sweep(name)
    if other is None:
        path, text = folder.path / "report.html", page_file(lab, folder.name)
    else:
        path = folder.path / f"report-{other}.html"
        text = versus_file(lab, folder.name, other)
    path = output or path
    write_text(path, text)
    print(path)
    return DONE


def dashboard(
    *,
    host: Host = "127.0.0.1",
    port: Annotated[int, "port to listen on (8600)", {"type": int}] = 8600,
    root: Root = None,
) -> int:
    """Follow sweeps in the browser.

    Example: tread-lab dashboard --port 8601
    """
    from tread_lab.cli.console import say
    from tread_lab.dashboards.server import serve

    serve(Lab.at(root), host=host, port=port, say=say)
    return DONE


def ui(
    *,
    host: Host = "127.0.0.1",
    port: Annotated[int, "port to listen on (5000)", {"type": int}] = 5000,
    root: Root = None,
) -> int:
    """Open the MLflow pages of this lab.

    Example: tread-lab ui --port 5001
    """
    from tread_lab.tracking.mlflow_tracker import MlflowTracker
    from tread_lab.tracking.store import ui as serve_ui

    lab = Lab.existing(root)
    for name in lab.sweeps():
        MlflowTracker(lab, lab.mlflow_uri).sync(name)
    serve_ui(lab, host=host, port=port)
    return DONE


def export(
    name: Annotated[str, "the start of a run's signature", {"metavar": "RUN"}],
    out: Annotated[Path, "a new folder"],
    *,
    step: Annotated[int | None, "step of a kept checkpoint (default: the last)"] = None,
    root: Root = None,
) -> int:
    """Write a run's EMA weights.

    Example: tread-lab export 3f2a weights --step 50000
    """
    from tread_lab.config.units import amount
    from tread_lab.evaluate.export import export as write_export

    for file, size in write_export(Lab.existing(root).known_run(name), out, step=step).items():
        print(f"{out / file}: {amount(size)}")
    return DONE


def cost(
    experiment: Annotated[
        str | None, "a base run (default: tiny; b2_imagenet256 with --model)"
    ] = None,
    overrides: Overrides = (),
    *,
    model: Annotated[str | None, "e.g. DiT-XL/2 (default: the model of the experiment)"] = None,
    route: Routes = None,
    rate: Rate = None,
    as_json: AsJson = False,
) -> int:
    """Compute parameters, MACs, FLOPs, speed-up.

    Example: tread-lab cost --route "2->B-4"
    """
    from tread_lab.cli.console import show_pairs
    from tread_lab.config.load import load_experiment
    from tread_lab.cost.training import report, table
    from tread_lab.sweep.plan import with_whole_parents

    if experiment and ("=" in experiment or experiment.startswith("~")):
        overrides, experiment = [experiment, *overrides], None
    lightning = (model or "").startswith("LightningDiT")  # of latents 32x16x16
    of_model = "lightning_xl1_imagenet256" if lightning else "b2_imagenet256"
    name = experiment or (of_model if model else "tiny")
    named_model = [f"model={model}"] if model else []
    written = routed(route, [*overrides, *named_model])
    spec = run_spec(with_whole_parents(load_experiment(name, written), Lab.at()), rate)
    if as_json:
        print(json.dumps(report(spec), indent=1))
    else:
        show_pairs([("experiment", f"{name}, {spec.tokens} tokens"), *table(spec)])
    return DONE


def slurm(
    file: SweepFile,
    overrides: Overrides = (),
    *,
    nodes: Annotated[int, "nodes of the job (1)"] = 1,
    gpus: Annotated[int, "GPUs of each node; 0: none", {"type": int, "metavar": "N"}],
    time: Annotated[str, "time limit of the job, e.g. 12:00:00"],
    cores: Annotated[int | None, "CPU cores of each node (default: the cores of its runs)"] = None,
    gpus_per_run: Annotated[
        float | None, "GPUs per run, or a share such as 0.5 (default: 1 where nodes have GPUs)"
    ] = None,
    margin: Annotated[int, "seconds before the time limit at which runs stop (300)"] = 300,
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
    from tread_lab.cost.training import cost as cost_of
    from tread_lab.hardware import AMPERE, RunResources
    from tread_lab.sweep.expand import expand

    file_name, sweep, experiment = load_sweep(file, overrides)
    facts = {"device": {"type": "cuda", "precisions": [*AMPERE]}}
    expand(sweep, experiment, facts, lambda spec: cost_of(spec).train_flops)
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
    print("\n".join(lines) + _SLURM.read_text(), end="")
    return DONE
