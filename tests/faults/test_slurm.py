"""Sweeps as jobs of Slurm: real daemons, two nodes on this machine, times that run out."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.compare import outcome
from tests.faults.drivers import DONE, Place, Zygote, eventually
from tests.faults.sweeps import LONG_RUNS, SLOW_DISK
from tests.tracking.test_store import free_port
from tread_lab.records.lab import Lab

HALF_AN_HOUR = 1800
# Two jobs at once save a first step in a minute or two; on the slow disk all take half an hour.
LIMITS = ("--time=6", "--margin=120")
CONF = """
ClusterName=two
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
MinJobAge=86400
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={n1} CPUs=4
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={n2} CPUs=4
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@dataclass
class Job:
    """A sweep in a lab of its own, on a disk that is slow as long as the test wants; its job."""

    folder: Path
    number: str

    @property
    def lab(self) -> Lab:
        return Lab(self.folder / "lab")

    def saves(self) -> None:
        """Wait for the first checkpoint of a run."""
        self._until(lambda: any(self.folder.glob("lab/runs/*/checkpoints/*.safetensors")))

    def says(self, line: str) -> None:
        """Wait for a line of the job's log."""
        self._until(lambda: line in self.said())

    def completes(self) -> None:
        self._until(lambda: self.facts()["JobState"] == "COMPLETED", "COMPLETED")

    def said(self) -> str:
        logs = sorted(self.folder.glob("slurm-*.out"))
        return "\n".join(path.read_text() for path in logs)

    def full_speed(self) -> None:
        (self.folder / "slow").unlink()

    def facts(self) -> dict[str, str]:
        words = ("scontrol", "show", "job", "--oneliner", self.number)
        shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return dict(re.findall(r"(\S+?)=(\S*)", shown))

    def _until(self, condition: Callable[[], bool], *states: str) -> None:
        passing = {"PENDING", "RUNNING", "COMPLETING", "REQUEUED", *states}

        def holds() -> bool:
            state = self.facts()["JobState"]  # what the condition waits for may end the job
            held = condition()
            assert held or state in passing, self.said()
            time.sleep(0 if held else 1)
            return held

        eventually(holds, HALF_AN_HOUR, self.said)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Slurm's daemons and munge's, which authenticates them; two nodes with four CPUs each."""
    folder, host = tmp_path / "slurm", socket.gethostname()
    folder.mkdir(mode=0o755)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(32))
    key.chmod(0o400)
    ports = {name: free_port() for name in ("port", "n1", "n2")}
    (folder / "slurm.conf").write_text(CONF.format(folder=folder, host=host, **ports))
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    files = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log"}
    files["seed-file"] = "seed"
    munge = [f"--{option}={folder}/munge.{end}" for option, end in files.items()]
    commands = (
        ["munged", "--foreground", "--force", *munge],
        ["slurmctld", "-D", "-c"],
        ["slurmd", "-D", "-N", "n1"],
        ["slurmd", "-D", "-N", "n2"],
    )
    with ExitStack() as stack:
        for k, command in enumerate(commands):
            log = stack.enter_context((folder / f"{k}.out").open("w"))
            daemon = subprocess.Popen(command, stdout=log, stderr=log)
            stack.callback(daemon.wait, 60)
            stack.callback(daemon.terminate)
            if k == 0:
                eventually((folder / "munge.sock").exists)
        queue = ("squeue", "--noheader")
        stack.callback(lambda: eventually(lambda: not subprocess.check_output(queue), 120))
        stack.callback(subprocess.run, ["scancel", "--user=root"], check=False)
        words = ("sinfo", "--noheader", "--format=%D", "--states=idle")
        eventually(lambda: subprocess.check_output(words, text=True).strip() == "2", 120)
        yield


@pytest.fixture
def without_scontrol(tmp_path: Path) -> str:
    """A PATH with all programs of this machine but `scontrol`."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for place in ("/usr/bin", "/bin"):
        for program in Path(place).iterdir():
            if program.name != "scontrol" and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


def submit(zygote: Zygote, folder: Path, *words: str, **env: str) -> Job:
    """Submit the batch file of the sweep in a folder, with words for `sbatch`."""
    (folder / "hook").mkdir(parents=True)
    (folder / "small.yaml").write_text(LONG_RUNS)
    slow = folder / "slow"
    slow.touch()
    (folder / "hook/sitecustomize.py").write_text(SLOW_DISK.format(slow=str(slow)))
    sizes = ("--gpus=0", "--cores=1", "--tracker=none", *LIMITS)
    done = zygote.run(folder, "submit", "slurm", "small.yaml", *sizes)
    assert done.returncode == 0, done.stderr
    (folder / "job.sbatch").write_text(done.stdout)
    command = ["sbatch", "--parsable", *words, "job.sbatch"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{folder}/hook", **env}
    number = subprocess.check_output(command, cwd=folder, env=environment, text=True)
    return Job(folder, number.strip())


@pytest.mark.task(63)
@pytest.mark.long
@pytest.mark.timeout(2 * HALF_AN_HOUR)
@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("munged", "slurmctld", "slurmd", "sbatch"))),
    reason="no Slurm here, or not root",
)
@pytest.mark.fault(
    23,
    survived="runs save checkpoints and the job is requeued, or a new one follows; results"
    " are equal bitwise",
)
def test_slurm_jobs_resume_after_their_time(
    zygote: Zygote, slurm: None, without_scontrol: str, tmp_path: Path
) -> None:
    calm = Place(zygote, tmp_path / "calm")
    calm.folder.mkdir()
    with calm.write(LONG_RUNS).sweep() as driver:
        assert driver.wait(HALF_AN_HOUR) == DONE, driver.said()

    requeued = submit(zygote, tmp_path / "a", "--nodes=2")
    beside = ("--nodes=1", "--nodelist=n1")
    followed = submit(zygote, tmp_path / "b", *beside, PATH=without_scontrol)
    both = (requeued, followed)
    for job in both:
        job.saves()
    facts = [job.facts() for job in both]
    assert [(f["JobState"], f["NodeList"]) for f in facts] == [
        ("RUNNING", "n[1-2]"),
        ("RUNNING", "n1"),
    ]
    for job in both:
        job.says("goes on from its checkpoints")
        job.full_speed()
    requeued.completes()
    numbers = [followed.number]
    for number in numbers:  # a slow machine may need more than two
        Job(followed.folder, number).completes()
        line = rf"^job {number}, .*: job (\d+) goes on$"
        numbers += re.findall(line, followed.said(), re.MULTILINE)
    assert int(requeued.facts()["Restarts"]) >= 1 and len(numbers) >= 2
    assert outcome(requeued.lab) == outcome(followed.lab) == outcome(calm.lab)
