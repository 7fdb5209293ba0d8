"""One attempt at a run: opened and closed in the run's record, with the reason for its end."""

from __future__ import annotations

import contextlib
import functools
import os
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

import tread_lab
from tread_lab.cost.training import cost
from tread_lab.data.content import check_content
from tread_lab.engine.provenance import fingerprint, of_nodes
from tread_lab.engine.ranks import OneProcess, Processes
from tread_lab.records.attempts import Attempt, kind_of
from tread_lab.records.durable import disk_error
from tread_lab.records.run_folder import RunFolder
from tread_lab.specs.errors import UserError, first_line
from tread_lab.specs.run import RunSpec
from tread_lab.sweep.trial.watchdog import Watchdog


@functools.cache
def _session(pid: int) -> str:
    """Return the session of this process; a forked process has one of its own."""
    return uuid.uuid4().hex[:12]


@dataclass(frozen=True)
class WorkerInfo:
    """The worker that carries out an attempt, as its executor describes it.

    Attributes:
        driver: the session of the driver; by default that of this process.
        node: Ray's id of the node, or the name of the host without Ray.
        alive: the nodes that are in the cluster now; `None` without a cluster.
        runs_per_device: most runs that share its device.
        processes: starts those that train a run together, one for each of its devices.
        hang_timeout: seconds without progress after which the attempt is ended; 0 for never,
            `None` for a limit derived from the run's own speed.
        expected: what the driver found of that which must be equal on all nodes; empty where the
            driver itself trains.
        token: a file of the driver's in the lab, which every node must see.
        stopping: whether a signal to this process has asked it to stop.
    """

    driver: str = field(default_factory=lambda: _session(os.getpid()))
    node: str = os.uname().nodename
    alive: frozenset[str] | None = None
    runs_per_device: int = 1
    processes: Processes = field(default_factory=OneProcess)
    hang_timeout: float | None = None
    expected: Mapping[str, str] = field(default_factory=dict)
    token: Path | None = None
    stopping: Callable[[], bool] = bool


class NodeMismatch(UserError):
    """A node would train something else than its driver has planned."""


class OpenAttempt:
    """An attempt under way: its phase, its ending, and the watchdog that hears of its progress."""

    def __init__(self, watchdog: Watchdog, worker: WorkerInfo) -> None:
        self.phase, self.ended, self.worker = "train", "completed", worker
        self._watchdog, self.progress = watchdog, watchdog.progress

    def start_evaluating(self) -> None:
        """Enter the phase of the evaluations, whose first progress may take long."""
        self.phase = "evaluate"
        self._watchdog.start_phase()


@contextlib.contextmanager
def attempt(
    folder: RunFolder,
    spec: RunSpec,
    device: torch.device,
    worker: WorkerInfo,
    provenance: Mapping[str, str] | None = None,
) -> Iterator[OpenAttempt]:
    """Record the block as an attempt, with the exception that ended it.

    Args:
        provenance: of the run, where `check_node` has found it.

    Raises:
        UserError: the data are not those of the spec, or cannot be read.
        DiskFull: any write found the disk full.
    """
    check_content(spec.data, folder.cache)
    opened = folder.attempts.open(
        driver=worker.driver,
        node=worker.node,
        host=os.uname().nodename,
        pid=os.getpid(),
        runs_per_device=worker.runs_per_device,
        devices=worker.processes.count,
        fingerprint=provenance or fingerprint(spec, device.type),
    )
    watchdog = Watchdog(folder.stack_dump(opened.n), folder.heartbeat_path, worker.hang_timeout)
    under_way = OpenAttempt(watchdog, worker)
    try:
        with watchdog:
            yield under_way
    except BaseException as error:
        ended = kind_of(error)
        if ended == "exception" and worker.stopping():
            ended = "interrupted"  # Ctrl-C ends child processes, too, such as a compiler
        facts = {}
        if ended != "interrupted":
            mistake = isinstance(error, UserError)
            text = str(error) if mistake else f"{type(error).__name__}: {error}"
            trace = "" if mistake else "".join(traceback.format_exception(error))
            facts = {"reason": text, "traceback": trace}
        with contextlib.suppress(UserError):  # a full disk has no room for this either
            folder.attempts.close(opened, ended, phase=under_way.phase, **facts)
        if isinstance(error, OSError) and ended == "disk":
            raise disk_error(error, folder.path) from error
        if ended == "oom":
            raise _out_of_memory(folder.name, spec, error) from None
        raise
    folder.attempts.close(opened, under_way.ended, phase=under_way.phase)


def _out_of_memory(run: str, spec: RunSpec, error: BaseException) -> UserError:
    """Return the line about a run whose memory did not suffice; no traceback keeps what it held."""
    images = cost(spec).micro_batch
    return UserError(
        f"execution.micro_batch: must be smaller for run {run}, got {images}:"
        f" {type(error).__name__}: {first_line(error)}. Try {max(1, images // 2)}, which keeps the"
        " run, and run the same command again."
    )


def check_node(
    folder: RunFolder, spec: RunSpec, device: torch.device, worker: WorkerInfo
) -> dict[str, str] | None:
    """Refuse a run on a node that differs from its driver; nothing is written into its folder.

    Returns:
        The provenance of the run here, `None` where the driver itself trains.

    Raises:
        NodeMismatch: this node would train something else than the driver has planned, or does not
            see the driver's lab.
    """
    if not worker.expected:
        return None
    node = f"node {worker.node[:12]} ({os.uname().nodename})"
    if worker.token is not None and not worker.token.exists():
        raise NodeMismatch(
            f"{node} does not see {worker.token}, which the driver has written; mount the lab at"
            " the same path there, or take the node out of the cluster"
        )
    try:
        check_content(spec.data, folder.cache)
        provenance = fingerprint(spec, device.type)
    except UserError as error:
        raise NodeMismatch(f"{node}: {error}") from None
    found, expected = of_nodes(provenance), worker.expected
    different = [
        f"{what} is {found.get(what, 'absent')}, and {expected[what]} where the driver runs"
        for what in expected
        if expected[what] != found.get(what)
    ]
    if different:
        data = f", data in {spec.data.path}" if spec.data.path else ""
        raise NodeMismatch(
            f"{node} has code in {Path(tread_lab.__file__).parent}{data}: {'; '.join(different)};"
            " make it equal, or take it out of the cluster"
        )
    return provenance


def counted_attempts(folder: RunFolder, worker: WorkerInfo) -> list[Attempt]:
    """Return the attempts that the retry policy counts; close the last one if it was left open.

    The caller holds the run's lock, so that an attempt that was left open has no process any more.
    Every driver evaluates a trained run with fresh tries: what was missing may be there now.
    """
    attempts = folder.attempts.read()
    if attempts and not attempts[-1].ended:
        ended, reason = why_open(folder, attempts[-1], worker)
        attempts[-1] = folder.attempts.close(attempts[-1], ended, reason=reason)
    attempts = [_lost_later(folder, one, worker) for one in attempts]
    trained = folder.result() is not None
    return [a for a in attempts if a.driver == worker.driver or not trained]


def _lost_later(folder: RunFolder, left: Attempt, worker: WorkerInfo) -> Attempt:
    """Return an attempt as lost whose process died of a cut that took its node a moment later."""
    is_ours = left.ended == "died" and left.driver == worker.driver
    if not is_ours or worker.alive is None or left.node in worker.alive:
        return left
    return folder.attempts.close(left, "lost", reason=_has_left(left))


def _has_left(left: Attempt) -> str:
    return f"{_node_of(left)} has left the cluster"


def unreachable(left: Attempt) -> str:
    """Return the reason of an attempt whose node does not answer, though the cluster lists it."""
    return f"{_node_of(left)} cannot be reached"


def _node_of(left: Attempt) -> str:
    return f"node {left.node[:12]} of process {left.pid} on {left.host}"


def why_open(folder: RunFolder, left: Attempt, worker: WorkerInfo) -> tuple[str, str]:
    """Return the kind and the reason of an ending that the process itself could not record."""
    where, dump = f"process {left.pid} on {left.host}", folder.stack_dump(left.n)
    if dump.exists() and dump.stat().st_size:
        return "hung", f"{where} made no progress; where it stood is in {dump}"
    dump.unlink(missing_ok=True)
    if worker.alive is not None and left.node not in worker.alive:
        return "lost", _has_left(left)
    if left.driver != worker.driver:
        return "orphaned", f"the driver of {where} ended first"
    return "died", f"{where} was killed"
