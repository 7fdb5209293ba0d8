"""What many trials cost: CPU seconds and memory of plan, driver, `status`, frame and dashboard.

    python benchmarks/trials.py --out OUT [--trials 1000 10000 100000] [--ray 1000]
    python benchmarks/trials.py --out OUT --trials --ray 0     (draw OUT/results.jsonl alone)

Each phase is a process of its own, whose peak the kernel tells. The driver is `tread-lab sweep` as
it is, but for figures and an executor that trains nothing and writes what a run leaves, unsynced.
`--ray` says how many tasks that do nothing pass through Ray Tune, which keeps objects of its own.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from tread_lab.records.checksums import json_text
from tread_lab.specs.decode import encode

Row = dict[str, Any]
CELLS, SEEDS = 70, 10  # of one learning rate; each rate has a baseline for every seed
SWEEP = """
experiment: tiny
axes:
  route: {{start: 0..5, end: 6..11}}
  rate: [0.25, 0.5]
  train.lr: {rates}
where: end - start < 11
seeds: 0..9
evaluate: [{{heldout_loss: {{images: 32, levels: 4}}}}]
"""
FINGERPRINT = {  # of an attempt
    "code": "cdb6099e61016a08",
    "data fashion16": "5b6b16cd1221295f",
    "held-out data fashion16": "daaeb2800634ee12",
    "blocks of dit": "eager",
    "attention backend": "torch",
}
LIMITS = {  # phase -> its number, the most it may be, how that is written
    "plan": ("peak MB", 1000.0, "at most {:g} MB"),
    "driver": ("kB a trial", 20.0, "at most {:g} kB a trial"),
    "status": ("CPU s", 30.0, "at most {:g} CPU s"),
    "trials_frame": ("exponent", 1.05, "exponent at most {:g}"),
    "ray": ("kB a trial", 20.0, "at most {:g} kB a trial"),
}


def write_sweep(folder: Path, trials: int) -> None:
    """Write a sweep file of about so many trials."""
    count = max(1, round(trials / (SEEDS * (CELLS + 1))))
    rates = [round(1e-3 + 1e-6 * k, 9) for k in range(count)]
    (folder / "scale.yaml").write_text(SWEEP.format(rates=rates))


REPEATED = {"status": 3, "trials_frame": 3}  # whose seconds have limits; a median counts

encoded = functools.cache(encode)


class Recorder:
    """An executor that trains nothing: it writes the result and the held-out losses of a run."""

    def run(self, lab: Any, work: Any, on_report: Callable[[Any], None]) -> None:
        from tread_lab.sweep.trial.task import as_queue
        from tread_lab.sweep.trial.trial import Report

        queue = as_queue(work)
        while (task := queue.next()) is not None:
            record(lab, task)
            steps = task.spec.train.steps
            on_report(Report(task.run, "completed", steps, steps, 0.25))
            queue.ended(task)
        print(json.dumps({"MB at the last run": resident()}))


def resident() -> float:
    """Return the resident memory of this process in MB."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


@functools.cache
def losses(folder: Path, seed: int, routed: bool) -> Path:
    """Write the held-out losses that runs of a seed share; each has a link to them."""
    shared = np.random.default_rng(seed)
    dense = 0.2 + 0.1 * shared.gamma(2.0, size=(32, 4))
    arrays = {"dense": dense, "level": np.exp(shared.normal(size=dense.shape))}
    if routed:
        own = dense + shared.normal(0.01, 0.004, dense.shape)
        arrays |= {"dense": own, "routed": own + 0.02}
    path = folder / f"losses-{seed}-{routed}.npz"
    np.savez(path, **arrays)
    return path


def record(lab: Any, task: Any) -> None:
    """Write what a run leaves: attempt, result, and its held-out evaluation with the losses."""
    folder, (evaluation,) = lab.run(task.run), task.evaluations
    folder.attempts.close(folder.attempts.open(fingerprint=FINGERPRINT), "completed")
    measured = folder.evaluation(evaluation).path
    measured.mkdir(parents=True)
    os.link(losses(lab.root, task.spec.seed, bool(task.spec.routes)), measured / "losses.npz")
    loss = {"heldout/loss": 0.3 + int(task.run, 16) / 2**70}
    made = {"made_with": FINGERPRINT, "files": {}}
    metrics = {"spec": encoded(evaluation), "metrics": loss, **made}
    (measured / "metrics.json").write_text(json_text(metrics))
    costs = {"cost/train_flops": 1e12, "cost/train_seconds": 60.0, "cost/step_seconds": 0.1}
    result = {"state": "completed", "step": task.spec.train.steps, "metrics": costs, "files": {}}
    (folder.path / "result.json").write_text(json_text(result))


def drive() -> None:
    """`tread-lab sweep scale.yaml` with an executor that trains nothing, and without figures."""
    from dataclasses import replace

    from tread_lab import cli
    from tread_lab.analysis.figures import catalogue
    from tread_lab.sweep.execution import executors

    kind = replace(executors.EXECUTORS["inline"], make=lambda *_: Recorder())
    argv = ["tread-lab", "sweep", "scale.yaml", "--executor=inline", "--no-mlflow", "--device=cpu"]
    with (
        mock.patch.object(catalogue, "write_figures", lambda *_: []),
        mock.patch.dict(executors.EXECUTORS, {"inline": kind}),
        mock.patch.object(os, "fsync", lambda _: None),
        mock.patch.object(sys, "argv", argv),
    ):
        cli.run()


def frame() -> None:
    """Read the frame of the sweep, as a notebook does first."""
    from tread_lab.frames.lab_frames import open_lab

    with busy("CPU s"):
        assert len(open_lab("lab").sweep("scale").trials) > 0


def look() -> None:
    """Open the sweep in the dashboard, then change one run and see what the server does."""
    from tread_lab.dashboards.pages import Pages
    from tread_lab.records.lab import Lab

    lab = Lab(Path("lab"))
    pages = Pages(lab)
    sweep = pages.live("scale")
    with busy("first reading CPU s"):
        sweep._read()
    with busy("first page CPU s"):
        json.dumps(pages.sweep("scale"), default=str)
    trial = sweep.snapshot().plan.trials[-1]
    run = lab.run(trial.run)
    facts = {k: v for k, v in (run.result() or {}).items() if k not in ("state", "files")}
    run.finish("completed", **facts | {"metrics": {**facts["metrics"], "cost/train_flops": 2e12}})
    with busy("update: reading CPU s"):
        sweep._read()
    with busy("update: page CPU s"):
        json.dumps(pages.sweep("scale", version="1"), default=str)
    with busy("update: ranking CPU s"):
        json.dumps(pages.table("scale"), default=str)


def through_ray(count: int) -> None:
    """Pass tasks that do nothing through Ray Tune; say what the driver keeps of each."""
    from tread_lab.config.load import load_experiment
    from tread_lab.records.lab import Lab
    from tread_lab.specs import RunSpec, decode
    from tread_lab.sweep.execution import ray_executor, ray_worker
    from tread_lab.sweep.trial.task import Task
    from tread_lab.sweep.trial.trial import Report

    class NoOp(ray_worker.Worker):
        """A worker whose tasks do nothing."""

        def reports(self) -> Iterator[Report]:
            yield Report(self.task.run, "completed", 1, 1, 0.0)

    base = load_experiment("tiny", ["train.steps=1"])
    work = [Task(decode(RunSpec, {**base.run, "seed": seed})) for seed in range(count)]
    seen: list[float] = []

    def watch(report: Report) -> None:
        seen.append(resident())

    with mock.patch.object(ray_executor, "Worker", NoOp):
        ray_executor.RayExecutor().run(Lab(Path("lab").absolute()), work, watch)
    first = count // 4
    print(json.dumps({"kB a trial": (seen[-1] - seen[first]) / (count - first) * 1e3}))


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Print the CPU seconds of the block as JSON."""
    started = time.process_time()
    yield
    print(json.dumps({what: time.process_time() - started}))


PHASES: dict[str, Sequence[str]] = {  # what each runs, in order: the driver makes the lab
    "plan": ("-m", "tread_lab", "sweep", "scale.yaml", "--plan"),
    "driver": (__file__, "--phase=drive"),
    "status": ("-m", "tread_lab", "status", "scale"),
    "trials_frame": (__file__, "--phase=frame"),
    "dashboard": (__file__, "--phase=look"),
}
OWN = {"drive": drive, "frame": frame, "look": look}


def measure(phase: str, arguments: Sequence[str], trials: int, folder: Path) -> Row:
    """Run a phase as a process; return its CPU seconds, its peak, and what it says in JSON."""
    root = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "TREAD_LAB_ROOT": str(folder / "lab")}
    command, out = [sys.executable, *arguments], folder / f"{phase}.txt"
    with out.open("w") as file:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=file)
        _, status, used = os.wait4(process.pid, 0)
    text = out.read_text()
    if status:
        raise SystemExit(f"{phase} of {trials} trials ended with {status}:\n{text[-3000:]}")
    row = {"phase": phase, "trials": trials, "peak MB": used.ru_maxrss * 1.024e-3}
    row["CPU s"] = used.ru_utime + used.ru_stime
    for line in text.splitlines():
        if line.startswith("{"):
            row |= json.loads(line)
    print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    return row


def all_phases(trials: int, phases: Sequence[str], out: Path) -> Iterator[Row]:
    """Measure phases on one sweep; all after the driver need its lab."""
    with tempfile.TemporaryDirectory(prefix="trials-", dir=out) as name:
        folder = Path(name)
        write_sweep(folder, trials)
        planned = 0
        for phase in (p for p in phases for _ in range(REPEATED.get(p, 1))):
            row = measure(phase, PHASES[phase], planned or trials, folder)
            if not planned and (path := folder / "lab/sweeps/scale/plan.json").exists():
                planned = len(json.loads(path.read_text())["trials"])
            yield {**row, "trials": planned or trials}


def medians(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each phase and number of trials, with medians where it was repeated."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["phase"], row["trials"]), []).append(row)
    return [
        {
            k: v if isinstance(v, str) else statistics.median(r[k] for r in group)
            for k, v in group[0].items()
        }
        for group in groups.values()
    ]


def numbers(rows: Sequence[Row]) -> dict[str, float]:
    """Return the number of each phase that has a limit, at the most trials that were measured."""
    found = {}
    for phase, (number, _, _) in LIMITS.items():
        own = sorted((r for r in rows if r["phase"] == phase), key=lambda row: row["trials"])
        if not own:
            continue
        first, last = own[0], own[-1]
        more = last["trials"] - first["trials"]
        if number in last:
            found[phase] = last[number]
        elif number == "kB a trial" and more:
            found[phase] = (last["peak MB"] - first["peak MB"]) / more * 1e3
        elif number == "exponent" and len(own) > 1:
            before = own[-2]
            times = math.log(last["trials"] / before["trials"])
            found[phase] = math.log(last["CPU s"] / before["CPU s"]) / times
    return found


def picture(rows: Sequence[Row]) -> bytes:
    """Return CPU seconds and peak memory of each phase against the number of trials."""
    from tread_lab.analysis.figures.style import CYCLE, PAGE, as_bytes, figure

    fig, axes = figure(width=PAGE, height=2.7, rows=1, columns=2)
    for ax, key, name in zip(axes, ("CPU s", "peak MB"), ("CPU seconds", "peak memory (MB)")):
        for colour, phase in zip(CYCLE, PHASES):
            own = sorted((r["trials"], r[key]) for r in rows if r["phase"] == phase)
            ax.plot(*zip(*own), "o-", color=colour, label=phase)
        ax.set(xscale="log", yscale="log", xlabel="trials", ylabel=name)
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    return as_bytes(fig, "png", dpi=200)


def main() -> None:
    """Measure what is asked for; print the limits and draw all that was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--trials", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--phases", nargs="*", choices=PHASES, default=[*PHASES])
    parser.add_argument("--ray", type=int, default=1_000)
    parser.add_argument("--phase", choices=[*OWN, "ray"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phase:
        own = {**OWN, "ray": lambda: through_ray(options.ray)}
        own[options.phase]()
        return
    options.out.mkdir(parents=True, exist_ok=True)
    results = options.out / "results.jsonl"
    with results.open("a") as file:
        for trials in options.trials:
            for row in all_phases(trials, options.phases, options.out):
                print(json.dumps(row), file=file, flush=True)
        if options.ray:
            command = (__file__, "--phase=ray", f"--ray={options.ray}")
            with tempfile.TemporaryDirectory() as folder:
                row = measure("ray", command, options.ray, Path(folder))
            print(json.dumps(row), file=file, flush=True)
    rows = medians([json.loads(line) for line in results.read_text().splitlines()])
    for phase, value in numbers(rows).items():
        number, _, text = LIMITS[phase]
        print(f"{phase:<14}{number} {value:.3g} ({text.format(LIMITS[phase][1])})")
    (options.out / "trials.png").write_bytes(picture(rows))


if __name__ == "__main__":
    main()
