"""Everything to know about a GPU in two calls, of 525 s and of 120 s at most, best rows first.

    python benchmarks/gpu.py --out OUT --call 1        (then 2)
    python benchmarks/gpu.py --out OUT --only profile
    python benchmarks/gpu.py --out OUT --device cpu --small        (to try the script itself)

Every phase is a process of its own with a time limit: what crashes, hangs or runs out of memory
costs that phase alone. Results go to OUT/results.jsonl, a line each, as they are found; what a
phase prints goes to OUT/PHASE.log. Needs torch, accelerate, safetensors, numpy and Pillow; the FID
needs diffusers and torch-fidelity, too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

os.environ.setdefault("OMP_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests.stand_ins, and an uninstalled tread_lab

from gpu_phases import images, runs, steps
from gpu_phases.shared import Bench

# name -> the most seconds that the phase may take, and what it does
PHASES: dict[str, tuple[int, Callable[[Bench], None]]] = {
    "S": (85, lambda bench: steps.measure(bench, "S")),
    "B": (110, lambda bench: steps.measure(bench, "B")),
    "XL": (160, lambda bench: steps.measure(bench, "XL")),
    "profile": (50, steps.profile),
    "fid": (120, images.fid),
    "calls": (45, lambda bench: (images.sampler_call(bench), steps.bernoulli(bench))[0]),
    "repeats": (30, runs.repeats),
    "packed": (45, runs.packed),
}
CALLS = {1: ("S", "B", "XL", "profile", "fid"), 2: ("calls", "repeats", "packed")}


def drive(options: argparse.Namespace) -> bool:
    """Run the phases of a call in their order; return whether all have ended well."""
    names = options.only or CALLS[options.call]
    print(f"at most {sum(PHASES[name][0] for name in names)} s", flush=True)
    ends = []
    for name in names:
        command = [sys.executable, __file__, "--phase", name, "--out", str(options.out)]
        command += ["--device", options.device, *(["--small"] if options.small else [])]
        begun, log = time.monotonic(), options.out / f"{name}.log"
        with log.open("w") as file:
            ends.append(_run(command, file, PHASES[name][0] * (4 if options.small else 1)))
        print(f"{name}: {ends[-1]}, {time.monotonic() - begun:.0f} s", flush=True)
        if ends[-1] != "done":
            print("\n".join(log.read_text(errors="replace").splitlines()[-12:]), flush=True)
    return {*ends} == {"done"}


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


def main() -> int:
    """Drive the phases of a call, or run one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--call", type=int, choices=CALLS, default=1)
    parser.add_argument("--only", nargs="+", choices=PHASES)
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the script itself")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    # What one phase has compiled, the next one finds.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / "compiled"))
    if options.phase:
        with tempfile.TemporaryDirectory() as folder:  # what a phase makes goes with it
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            bench = Bench(options.phase, options.out, options.device, small=options.small)
            bench.say_device()
            PHASES[options.phase][1](bench)
        return 0
    done = drive(options)
    print((options.out / "results.jsonl").read_text())
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
