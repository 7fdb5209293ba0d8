"""Everything to know about a GPU in three calls of nine minutes, most important first.

    python benchmarks/gpu.py --out OUT --call 1        (then 2 and 3)
    python benchmarks/gpu.py --out OUT --only profile scaling
    python benchmarks/gpu.py --out OUT --device cpu --small        (to try the script itself)

Every phase is a process of its own with a time limit: what crashes, hangs or runs out of memory
costs that phase alone. Results go to OUT/results.jsonl, a line each, as they are found; what a
phase prints goes to OUT/PHASE.log. Needs torch, accelerate, safetensors, numpy and Pillow; decoding
needs diffusers, FID torch-fidelity, too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

from gpu_phases import ceilings, packed, paths, sampling, scaling, steps
from gpu_phases.shared import Bench


@dataclass(frozen=True)
class Phase:
    """One phase: the most seconds that it may take, and what it does."""

    seconds: int
    run: Callable[[Bench], None]


PHASES = {
    "whole": Phase(240, paths.whole_task),
    "step_B": Phase(120, lambda bench: steps.measure(bench, "B")),
    "repeats": Phase(90, paths.repeats),
    "ceilings": Phase(90, ceilings.measure),
    "step_S": Phase(150, lambda bench: steps.measure(bench, "S")),
    "step_XL": Phase(240, lambda bench: steps.measure(bench, "XL")),
    "parts": Phase(200, sampling.measure),
    "packed": Phase(170, packed.measure),
    "profile": Phase(90, steps.profile),
    "host": Phase(60, steps.host),
    "scaling": Phase(240, scaling.measure),
}
CALLS = {  # the limits of a call's phases add up to nine minutes at most
    1: ("whole", "step_B", "repeats", "ceilings"),
    2: ("step_S", "step_XL"),
    3: ("parts", "packed", "profile", "host"),
}
LEAST = 20  # seconds; a phase is not begun with less


def drive(options: argparse.Namespace) -> dict[str, str]:
    """Run the phases in their order until the time is up; return how each one ended."""
    ends, started = {}, time.monotonic()
    for name in options.only or CALLS[options.call]:
        phase = PHASES[name]
        left = 60 * options.minutes - (time.monotonic() - started)
        if left < LEAST:
            ends[name] = "no time left"
            print(f"{name}: no time left", flush=True)
            continue
        command = [sys.executable, __file__, "--phase", name, "--out", str(options.out)]
        command += ["--device", options.device, *(["--small"] if options.small else [])]
        begun, log = time.monotonic(), options.out / f"{name}.log"
        with log.open("w") as file:
            ended = _run(command, file, min(phase.seconds, left))
        ends[name] = f"{ended}, {time.monotonic() - begun:.0f} s"
        print(f"{name}: {ends[name]}", flush=True)
        if ended != "done":
            print("\n".join(log.read_text(errors="replace").splitlines()[-12:]), flush=True)
    return ends


def _run(command: list[str], log: IO[str], seconds: float) -> str:
    """Run a phase, and end it with all processes that it has started when its time is up."""
    with subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True) as process:
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return "out of time"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return "done" if code == 0 else f"failed, exit code {code}"


def show(path: Path) -> None:
    """Print every result in a line."""
    for line in path.read_text().splitlines() if path.exists() else []:
        row = json.loads(line)
        words = (f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items())
        print("  ".join(words)[:220])


def main() -> int:
    """Drive all phases, or run one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--call", type=int, choices=CALLS, default=1)
    parser.add_argument("--only", nargs="+", choices=PHASES)
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the script itself")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.phase:
        with tempfile.TemporaryDirectory() as folder:  # what a phase makes goes with it
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            bench = Bench(options.phase, options.out, options.device, options.small)
            bench.say_device()
            PHASES[options.phase].run(bench)
        return 0
    ends = drive(options)
    show(options.out / "results.jsonl")
    return int(any(not end.startswith("done") for end in ends.values()))


if __name__ == "__main__":
    sys.exit(main())
