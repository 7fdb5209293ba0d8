"""How long a plan of ten thousand trials takes: expanding, storing, and `status` as a process."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tread_lab.config.load import load_experiment
from tread_lab.records.lab import Lab
from tread_lab.specs import decode
from tread_lab.specs.sweep import SweepSpec
from tread_lab.sweep.plan.plan import make_plan
from tread_lab.sweep.plan.storage import load_plan, store_plan

RESULT = '{"state": "completed", "step": 1000, "metrics": {"cost/train_flops": 1e12}}'
SWEEP = {
    "experiment": "tiny",
    "axes": {"route": {"start": "0..5", "end": "6..11"}, "rate": [0.25, 0.5], "train.lr": []},
    "where": "end - start < 11",
}


def main() -> None:
    """Print seconds of this process (CPU and wall) and of `tread-lab` as a process of its own."""
    options = _options()
    rates = [1e-3 + 1e-5 * k for k in range(max(1, options.trials // 700))]
    axes = {**SWEEP["axes"], "train.lr": rates}  # type: ignore[dict-item]
    sweep = decode(SweepSpec, {**SWEEP, "axes": axes, "seeds": list(range(10))})
    experiment = load_experiment("tiny")
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder))
        with timed("expand into a plan"):
            plan = make_plan("scale", sweep, experiment)
        print(f"{len(plan.trials)} trials")
        with timed("tasks, FLOPs and disk"):
            print(f"{len(plan.tasks)} runs, {plan.train_flops:.2e} FLOPs, {plan.disk_bytes} bytes")
        with timed("store"):
            store_plan(lab.sweep("scale"), plan)
        with timed("load"):
            load_plan(lab.sweep("scale"))
        print(f"{lab.sweep('scale').plan_path.stat().st_size / 1e6:.1f} MB")
        process("status, no run begun", "status", "scale", "--root", folder)
        for run in lab.sweep("scale").plan().runs():
            lab.run(run).path.mkdir(parents=True)
            (lab.run(run).path / "result.json").write_text(RESULT)
        process("status, every run done", "status", "scale", "--root", folder)
        process("status of the lab", "status", "--root", folder)
        process("--help", "--help")


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long the block took."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    print(f"{what:<28}{time.perf_counter() - wall:8.2f} s wall{time.process_time() - cpu:8.2f} CPU")


def process(what: str, *arguments: str) -> None:
    """Print how long a command took, its start included: the best of three."""
    command = [sys.executable, "-c", "from tread_lab.cli import run; run()", *arguments]
    found = []
    for _ in range(3):
        before = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        found.append(time.perf_counter() - before)
    print(f"{what:<28}{min(found):8.2f} s wall")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
