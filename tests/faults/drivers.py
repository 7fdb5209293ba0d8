"""Drivers of sweeps in sessions of their own: started in a moment, watched, stopped, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tread_lab.records.lab import Lab

ROOT = Path(__file__).parents[2]
DONE, FAILED, MISTAKE, STOPPED, KILLED = 0, 1, 2, 130, -signal.SIGKILL
CRASHED = 70  # with a traceback, which no fault may lead to
QUIET = "from tests.faults.tricks import *\nwithout_extras()\n"  # a prelude: no figures


class Done(NamedTuple):
    """A command that has ended: its exit code and what it has printed."""

    returncode: int
    stdout: str
    stderr: str


class Zygote:
    """The process that every driver is forked from (`tests.faults.zygote`)."""

    def __init__(self) -> None:
        found = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(found), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._read()

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def run(self, folder: Path, *argv: str, prelude: str = "", **env: str) -> Done:
        """Run `tread-lab ARGV` in a folder, with this process's environment, to its end."""
        with tempfile.TemporaryDirectory(prefix="told") as told:
            out, err = Path(told, "out"), Path(told, "err")
            with self.start(folder, *argv, out=out, err=err, prelude=prelude, **env) as driver:
                return Done(driver.wait(550), out.read_text(), err.read_text())

    def python(self, code: str, *arguments: str) -> Done:
        """Run Python code with arguments in a process of its own, to its end."""
        given = f"import sys; sys.argv[1:] = {list(arguments)!r}\n"
        return self.run(ROOT, "--version", prelude=given + code)

    def start(
        self,
        folder: Path,
        *argv: str,
        out: Path,
        err: Path | None = None,
        prelude: str = "",
        **env: str,
    ) -> Driver:
        """Start `tread-lab ARGV` in a folder, with this process's environment."""
        pid = self.ask(
            argv=list(argv),
            cwd=str(folder),
            env={**os.environ, "OMP_NUM_THREADS": "1", **env},
            prelude=prelude,
            out=str(out),
            err=None if err is None else str(err),
        )["pid"]
        return Driver(self, pid, out)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@dataclass
class Driver:
    """One running `tread-lab` command; the leader of its own session."""

    zygote: Zygote
    pid: int
    out: Path
    status: int | None = None

    def poll(self) -> int | None:
        """The exit code once it has ended, negative for a signal."""
        if self.status is None:
            self.status = self.zygote.ask(poll=self.pid)["status"]
        return self.status

    def wait(self, seconds: float = 120) -> int:
        """The exit code."""
        eventually(lambda: self.poll() is not None, seconds, self.said)
        assert self.status is not None
        return self.status

    def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        """Wait for a condition that holds while the driver is at work."""

        def held() -> bool:
            assert condition() or self.poll() is None, f"ended ({self.status}): {self.said()}"
            return condition()

        eventually(held, seconds, self.said)

    def reach(self, condition: Callable[[], bool], seconds: float = 120) -> None:
        """Wait for a condition, or for the end of the driver."""
        eventually(lambda: condition() or self.poll() is not None, seconds, self.said)

    def signal(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the driver alone."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> int:
        """SIGKILL the driver and everything in its session; the exit code."""
        if self.poll() is None:
            for pid in session(self.pid):
                os.kill(pid, signal.SIGKILL)
        return self.wait()

    def said(self) -> str:
        """What it has printed so far."""
        return self.out.read_text() if self.out.exists() else ""

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@dataclass
class Place:
    """A folder with a sweep file and a lab, in which drivers are started."""

    zygote: Zygote
    folder: Path
    mlflow: bool = False
    started: int = 0

    @property
    def lab(self) -> Lab:
        return Lab(self.folder / "lab")

    def write(self, sweep: str, name: str = "small") -> Place:
        (self.folder / f"{name}.yaml").write_text(sweep)
        return self

    def at_gate(self, gate: str) -> Callable[[], bool]:
        """Whether a driver waits at the gate that its prelude has set up."""
        return (self.folder / f"{gate}.waits").exists

    def open_gate(self, gate: str) -> None:
        (self.folder / gate).touch()

    def start(self, *argv: str, prelude: str = "", **env: str) -> Driver:
        """Start `tread-lab ARGV`; the prelude is Python that the process runs before."""
        self.started += 1
        out = self.folder / f"driver-{self.started}.txt"
        given = {"HOME": str(self.folder), **env}
        return self.zygote.start(self.folder, *argv, out=out, prelude=QUIET + prelude, **given)

    def sweep(
        self, *more: str, name: str = "small", executor: str = "inline", **options: Any
    ) -> Driver:
        """Start the sweep, without Ray where not asked for and MLflow where this place has none."""
        quiet = () if self.mlflow else ("--tracker=none",)
        return self.start("sweep", f"{name}.yaml", "--executor", executor, *quiet, *more, **options)

    def finish(self, *more: str, **options: Any) -> Driver:
        """Run the sweep to its end, which is a good one."""
        with self.sweep(*more, **options) as driver:
            status = driver.wait()
        assert status == DONE, driver.said()
        return driver


def eventually(
    condition: Callable[[], bool], seconds: float = 60, why: Callable[[], str] = str
) -> None:
    """Wait for a condition, looking fifty times a second."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited too long: {why()}"
        time.sleep(0.02)


def session(leader: int) -> list[int]:
    """The live processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, sid, *_ = path.read_text().rpartition(")")[2].split()
            found += [int(path.parent.name)] if state != "Z" and int(sid) == leader else []
    return found
