"""A cluster in network namespaces: a node is killed, another joins, a link is cut four times."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.compare import outcome
from tests.faults.drivers import DONE, ROOT, Place, Zygote, eventually
from tests.faults.sweeps import LONG_RUNS, SLOW_DISK
from tread_lab.records.attempts import EXIT_REASONS, Attempt
from tread_lab.records.lab import Lab

CUTS, SECONDS = 4, 30
A_LONG_TIME = 900  # for Ray and its workers to start, beside others, on two cores
_RAY = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_prestart_worker_first_driver": "0",  # workers that nobody asked for
    "OMP_NUM_THREADS": "1",
}


@dataclass
class Network:
    """Nodes of Ray's, each in a namespace; the bridge between them is in one, too."""

    folder: Path
    name: str = field(default_factory=lambda: f"tl{secrets.token_hex(2)}")
    nodes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def open(self) -> None:
        _add_namespace(self.bridge)
        ip("link", "add", "bridge", "type", "bridge", within=self.bridge)
        ip("link", "set", "bridge", "up", within=self.bridge)

    def add(self, number: int, *arguments: str) -> None:
        """Give a new node an address and a default route, which Ray asks for, and start it."""
        here = self.at(number)
        _add_namespace(here)
        link = ("link", "add", "eth0", "type", "veth")
        ip(*link, "peer", "name", f"to{number}", "netns", self.bridge, within=here)
        ip("link", "set", f"to{number}", "master", "bridge", "up", within=self.bridge)
        ip("address", "add", f"{address(number)}/24", "dev", "eth0", within=here)
        ip("link", "set", "eth0", "up", within=here)
        ip("route", "add", "default", "via", address(254), within=here)
        self.start(number, *arguments)

    def start(self, number: int, *arguments: str) -> None:
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        # Sockets are in it, whose paths have to be short.
        own = [f"--node-ip-address={address(number)}", f"--temp-dir=/tmp/{self.at(number)}"]
        sizes = ["--disable-usage-stats", "--object-store-memory=100000000"]
        with (self.folder / f"node-{number}.txt").open("ab") as out:
            self.nodes[number] = subprocess.Popen(
                [*_in(self.at(number)), *ray, *own, *sizes, *arguments],
                env=self.environment,
                cwd=self.folder,
                stdout=out,
                stderr=out,
            )

    def at(self, number: int) -> str:
        """The namespace of a node."""
        return f"{self.name}n{number}"

    @property
    def bridge(self) -> str:
        return f"{self.name}bridge"

    @property
    def environment(self) -> dict[str, str]:
        code = f"{self.folder / 'hook'}:{ROOT}"
        return {**os.environ, **_RAY, "HOME": str(self.folder), "PYTHONPATH": code}

    @property
    def client(self) -> dict[str, str]:
        """The environment of what joins the cluster."""
        at = f"{address(1)}:6379"
        return {**self.environment, "RAY_ADDRESS": at, "TREAD_LAB_NODES": str(len(self.nodes))}

    def link(self, number: int, state: str) -> None:
        ip("link", "set", f"to{number}", state, within=self.bridge)

    def kill(self, number: int) -> None:
        """SIGKILL every process of a node."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.at(number)], capture_output=True, text=True
        )
        for pid in map(int, listed.stdout.split()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        for number, process in self.nodes.items():
            self.kill(number)
            process.wait()
            ip("netns", "delete", self.at(number))
            shutil.rmtree(f"/tmp/{self.at(number)}", ignore_errors=True)
        ip("netns", "delete", self.bridge)


def _add_namespace(name: str) -> None:
    ip("netns", "add", name)
    ip("link", "set", "lo", "up", within=name)


def ip(*arguments: str, within: str = "") -> None:
    subprocess.run(["ip", *(["-n", within] if within else []), *arguments], check=True)


def _in(name: str) -> list[str]:
    return ["ip", "netns", "exec", name]


def address(number: int) -> str:
    return f"10.77.0.{number}"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """A head that runs nothing; each file takes seconds to write while the file `slow` is there."""
    pytest.importorskip("ray")
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("network namespaces are for root, with iproute2")
    slow = tmp_path / "slow"
    slow.touch()
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook/sitecustomize.py").write_text(SLOW_DISK.format(slow=str(slow)))
    made = Network(tmp_path)
    try:
        made.open()
        made.add(1, "--head", "--port=6379", "--num-cpus=0", "--include-dashboard=false")
        yield made
    finally:
        made.close()


@pytest.mark.long
@pytest.mark.timeout(8 * A_LONG_TIME)
@pytest.mark.fault(
    8,
    survived="also where a link is cut four times for 30 s under runs of two processes each: no try"
    " is used, no traceback shown, and the results are bitwise those of an undisturbed sweep",
)
def test_a_link_is_cut_four_times_a_node_is_killed_and_another_joins(
    network: Network, zygote: Zygote, tmp_path: Path
) -> None:
    join = (f"--address={address(1)}:6379", "--num-cpus=2")
    cut, killed, new = 2, 3, 5
    for number in (cut, killed, 4):
        network.add(number, *join)
    lab, screen = Place(zygote, tmp_path).write(LONG_RUNS).lab, tmp_path / "screen.txt"
    with driving(network, tmp_path, screen) as driver:

        def works(number: int) -> None:
            """Wait until a run on a node goes on; one that Ray had given up is started again."""
            begun: dict[str, int] = {}

            def goes_on() -> bool:
                assert driver.poll() is None, screen.read_text()
                if network.nodes[number].poll() is not None:
                    network.start(number, *join)
                time.sleep(1)
                now = steps_at(lab, network.at(number))
                return any(step >= begun.setdefault(one, step) + 3 for one, step in now.items())

            eventually(goes_on, A_LONG_TIME, screen.read_text)

        for _ in range(CUTS):
            works(cut)
            network.link(cut, "down")
            time.sleep(SECONDS)
            network.link(cut, "up")
        works(killed)
        network.kill(killed)
        network.add(new, *join)
        works(new)
        (tmp_path / "slow").unlink()
        assert driver.wait(A_LONG_TIME) == DONE, screen.read_text()
    calm = Place(zygote, tmp_path / "calm")
    calm.folder.mkdir()
    with calm.write(LONG_RUNS).sweep("--processes=2") as undisturbed:
        assert undisturbed.wait(A_LONG_TIME) == DONE, undisturbed.said()
    assert outcome(lab) == outcome(calm.lab)
    attempts = [one for run in lab.runs() for one in run.attempts.read()]
    ended = {one.ended for one in attempts}
    assert {kind for kind in ended if EXIT_REASONS[kind].tries} == set(), attempts
    assert {"completed", "lost"} <= ended
    assert "Traceback" not in screen.read_text(), screen.read_text()


@contextmanager
def driving(network: Network, folder: Path, screen: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The sweep's command, in the head's namespace."""
    options = ["--processes=2", "--device=cpu", "--no-mlflow"]
    command = [sys.executable, "-m", "tread_lab", "sweep", "small.yaml", *options]
    with screen.open("wb") as out:
        driver = subprocess.Popen(
            [*_in(network.at(1)), *command],
            cwd=folder,
            env=network.client,
            stdout=out,
            stderr=out,
        )
        try:
            yield driver
        finally:
            driver.kill()
            driver.wait()


def steps_at(lab: Lab, namespace: str) -> dict[str, int]:
    """Attempt under way in a namespace -> the step that its run has come to."""
    now = {}
    for path in lab.root.glob("runs/*/attempts.jsonl"):
        run = lab.run(path.parent.name)
        last = next(reversed(run.attempts.read()), None)
        if last is not None and not last.ended and where(last) == namespace:
            now[f"{path.parent.name} {last.n}"] = run.step()
    return now


def where(attempt: Attempt) -> str:
    """The namespace of the process of an attempt."""
    asked = ["ip", "netns", "identify", str(attempt.pid)]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip()
