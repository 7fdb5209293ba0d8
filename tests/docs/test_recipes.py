"""The recipes work as they stand: their files are written, their commands run."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, Block, commands, section
from tests.faults.drivers import QUIET, Zygote, eventually
from tests.tracking.test_store import free_port
from tread_lab.records.lab import Lab
from tread_lab.results import trials_frame

pytestmark = pytest.mark.slow

PAGE = DOCS / "recipes.md"
PROGRAM = {
    "tread-lab": [sys.executable, "-c", "from tread_lab.cli.main import run; run()"],
    "python": [sys.executable],
}


def write(blocks: Sequence[Block], folder: Path) -> None:
    """Write the files of a recipe."""
    for block in blocks:
        if block.title:
            (folder / block.title).write_text(block.text)


def run(line: str, folder: Path, *more: str, zygote: Zygote | None = None, **variables: str) -> str:
    """Run a line of a page, forked from `zygote` where that can be; return what it answers."""
    program, *arguments = shlex.split(line)
    if zygote is not None and program == "tread-lab":
        ended = zygote.run(folder, *arguments, *more, prelude=QUIET, **variables)
        assert ended.returncode == 0, f"{line}\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}"
        return ended.stdout
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **variables}
    command = [*PROGRAM[program], *arguments, *more]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def test_my_own_data(tmp_path: Path, zygote: Zygote) -> None:
    blocks = section(PAGE, "My own data")
    write(blocks, tmp_path)
    made, train, sweep = (line for b in blocks if not b.language for line in commands(b.text))
    run(made, tmp_path)
    assert "completed" in run(train, tmp_path, zygote=zygote)
    run(
        sweep,
        tmp_path,
        "--executor",
        "inline",
        "--tracker=none",
        "train.steps=10",
        "train.warmup=0",
        "axes.rate=[0.5, 0.75]",
        zygote=zygote,
    )
    frame = trials_frame(Lab(tmp_path / "lab"), "my_rates")
    assert (frame["state"] == "completed").all() and frame["gap/heldout"].notna().sum() == 2


@pytest.mark.task(63)
@pytest.mark.long
def test_my_own_cluster(tmp_path: Path, zygote: Zygote) -> None:
    """The head that the recipe starts, with a port of its own; a sweep joins it by its address."""
    lines = [line for b in section(PAGE, "My own cluster") for line in commands(b.text)]
    head = next(line for line in lines if line.startswith("ray start --head"))
    mode, token = lines[:2]
    sweep = next(line for line in lines if line.startswith("tread-lab sweep"))
    port = free_port()
    started = shlex.split(head.replace("6379", str(port)))
    short = Path("/tmp") / f"ray-{os.getpid()}"  # a socket's path has to be short
    guarded = {"HOME": str(tmp_path)} | dict([mode.removeprefix("export ").split("=")])
    home = {**os.environ, **guarded, "PYTHONPATH": str(ROOT)}
    home.pop("RAY_AUTH_TOKEN_PATH")
    guarded["RAY_AUTH_TOKEN_PATH"] = str(tmp_path / ".ray" / "auth_token")
    scripts = [sys.executable, "-m", "ray.scripts.scripts"]
    subprocess.run([*scripts, *shlex.split(token)[1:]], env=home, check=True, capture_output=True)
    ray = [*scripts, *started[1:], "--block"]
    process = subprocess.Popen(
        [*ray, "--include-dashboard=false", "--no-monitor", "--temp-dir", str(short)],
        env=home,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        short = ("train.steps=10", "train.warmup=0", "train.ema=0.5")
        small = ("model={depth: 4, width: 16, heads: 2}", "evaluate=[]", *short)
        line = sweep.replace("/shared/lab", str(tmp_path / "lab"))
        address = f"127.0.0.1:{port}"
        answers = [*scripts, "health-check", "--address", address]
        eventually(lambda: not subprocess.run(answers, env=home, check=False).returncode, 200)
        axes = ("axes.route={start: 0, end: 1}", "where=[]", "--tracker=none", "--concurrent=1")
        more = (*small, *axes)
        run(line, tmp_path, *more, zygote=zygote, **guarded, RAY_ADDRESS=address)
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(short, ignore_errors=True)
    frame = trials_frame(Lab(tmp_path / "lab"), "route_placement")
    assert len(frame) == 2 and (frame["state"] == "completed").all()
