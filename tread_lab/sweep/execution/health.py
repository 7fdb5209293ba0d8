"""Health of nodes: what each says of itself, and what of that would harm the runs of a lab."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from tread_lab.data.source import both_parts
from tread_lab.engine.compiled import no_compiler
from tread_lab.engine.device import name
from tread_lab.engine.provenance import code_digest, decisive, fingerprint, measured_with, of_nodes
from tread_lab.engine.system import files_read
from tread_lab.metrics.requirements import check_requirements
from tread_lab.prepare.required_files import REQUIRED, STANDS_IN, absences
from tread_lab.records.durable import replacing, write_text
from tread_lab.records.locks import exclusive, is_taken
from tread_lab.specs.errors import Unavailable, UserError, first_line
from tread_lab.specs.evaluation import SamplesSpec
from tread_lab.specs.units import amount, duration
from tread_lab.sweep.trial.task import Task

WARNING, WRONG, UNAVAILABLE = 1, UserError.exit_code, Unavailable.exit_code
LEAST_FREE = 2**30  # bytes of a disk, below which it is nearly full
CLOCK = 30.0  # seconds that a clock may be off; what comes late over the network is less
_PROBE = 2**20  # bytes that every node writes
_NVIDIA = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Question:
    """What every node is asked about.

    Attributes:
        root: the lab.
        folder: where the driver has written `token` and holds the lock; `None` if it cannot.
        tasks: one for each set of files that open runs read.
    """

    root: Path
    folder: Path | None
    token: str
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class NodeHealth:
    """What a node says of itself. Defaults stand for what other versions of this code do not say.

    Attributes:
        gpus: those that work; gpu_error: why one does not.
        offered: GPUs that Ray hands out there.
        made_with: digests and versions that must be equal on all nodes.
        problems: what open runs lack there.
        absent: required file -> why it is not here, empty where it is.
        free: place -> bytes.
        unwritable: why nothing can be written in the lab; full: for want of room.
        unseen: why the driver's file is not seen.
        unlocked: why locks hold nothing.
        uncompiled: why nothing compiles.
        clock: seconds since 1970 at the end of the answer, or how far ahead of the driver's.
        silent: why there is no answer.
    """

    gpus: tuple[str, ...] = ()
    gpu_error: str = ""
    offered: float = 0
    made_with: Mapping[str, str] | None = None
    problems: tuple[str, ...] = ()
    absent: Mapping[str, str | None] | None = None
    free: Mapping[str, int] | None = None
    unwritable: str = ""
    full: bool = False
    unseen: str = ""
    unlocked: str = ""
    uncompiled: str = ""
    clock: float = 0.0
    silent: str = ""


@dataclass(frozen=True)
class Finding:
    """What is wrong on a node and what to do; `code` is the exit code that it gives."""

    node: str
    check: str
    text: str
    code: int


@contextlib.contextmanager
def question(root: Path, tasks: Sequence[Task]) -> Iterator[Question]:
    """Write a file where the lab lies or will lie, and hold a lock, while nodes are asked."""
    token = os.urandom(8).hex()
    folder, distinct = None, tuple({(decisive(t.spec), t.evaluations): t for t in tasks}.values())
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(UserError, OSError):  # `health` says the same of the driver
            made = tempfile.TemporaryDirectory(prefix=".tread-lab-doctor-", dir=_existing(root))
            probe = Path(stack.enter_context(made))
            write_text(probe / "token", token)
            stack.enter_context(exclusive(probe / "lock", "the lock of `tread-lab doctor`"))
            folder = probe
        yield Question(root, folder, token, distinct)


def health(asked: Question) -> NodeHealth:
    """Return what this node says of itself."""
    made_with, problems = _made_with(asked.tasks)
    unwritable, gpu_error = _error(lambda: _write(asked.root)), _said(_error(_try_gpus))
    probe = asked.folder
    return NodeHealth(
        gpus=() if gpu_error else tuple(map(name, _gpus())),
        gpu_error=gpu_error,
        made_with=made_with,
        problems=problems,
        absent=absences(),
        free={str(place): shutil.disk_usage(place).free for place in _places(asked.root)},
        unwritable=_said(unwritable),
        full=isinstance(unwritable, Unavailable),
        unseen="" if probe is None else _said(_error(lambda: _see(probe, asked.token))),
        unlocked="" if probe is None else _said(_error(lambda: _try_lock(probe))),
        uncompiled=no_compiler() or "",
        clock=time.time(),
    )


def _said(error: BaseException | None) -> str:
    return "" if error is None else first_line(error)


def _error(check: Callable[[], None]) -> Exception | None:
    try:
        check()
        return None
    except (UserError, OSError, RuntimeError, AssertionError) as error:
        return error


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def _places(root: Path) -> Iterable[Path]:
    return dict.fromkeys((_existing(root), Path(tempfile.gettempdir())))


def _gpus() -> list[torch.device]:
    return [torch.device("cuda", n) for n in range(torch.cuda.device_count())]


def _try_gpus() -> None:
    if _NVIDIA.exists() and not torch.cuda.is_available():
        raise UserError("an NVIDIA driver is here, and torch cannot use its GPUs")
    for gpu in _gpus():
        torch.zeros(1, device=gpu)


def _write(root: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".tread-lab-doctor-", dir=_existing(root)) as folder:
        with replacing(Path(folder, "probe")) as path:
            path.write_bytes(os.urandom(_PROBE))


def _see(probe: Path, token: str) -> None:
    if (probe / "token").read_text() != token:
        raise UserError(f"{probe} holds something else")


def _try_lock(probe: Path) -> None:
    if not is_taken(probe / "lock"):
        raise UserError("a lock that the driver holds is free here")


def _made_with(tasks: Sequence[Task]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what decides the results of tasks here, and a line for each thing that they lack."""
    found, problems = {"code": code_digest()}, dict[str, None]()

    @contextlib.contextmanager
    def collecting() -> Iterator[None]:
        try:
            yield
        except UserError as error:
            problems[str(error)] = None

    for task in tasks:
        with collecting():
            found |= fingerprint(task.spec, "cpu")
            train, heldout = both_parts(task.spec.data)
            for system, spec in files_read([task.spec]):
                system.check(spec, train, heldout)
            for evaluation in task.evaluations:
                with collecting():
                    if isinstance(evaluation, SamplesSpec):
                        source, preview = task.spec.data.source, heldout.preview
                        check_requirements(evaluation, source, preview=preview)
                    found |= measured_with(task.spec, evaluation, heldout)
    return of_nodes(found), tuple(problems)


# What a check makes of a node beside the driver: the cell of a table, and what is wrong.
Judged = tuple[str, list[tuple[int, str]]]


def _code(node: NodeHealth, driver: NodeHealth) -> Judged:
    mend = "install the same tread-lab there, or take the node out of the cluster"
    return _digest(node, "code")[:8], _unequal(node, driver, "code", mend)


def _packages(node: NodeHealth, driver: NodeHealth) -> Judged:
    mend = "install the same version there (constraints.txt lists those that are tested)"
    return f"torch {_digest(node, 'package torch')}", _unequal(node, driver, "packages", mend)


def _digest(node: NodeHealth, what: str) -> str:
    return (node.made_with or {}).get(what, "absent")


def _unequal(node: NodeHealth, driver: NodeHealth, check: str, mend: str) -> list[tuple[int, str]]:
    checks = {"code": "code", "package": "packages"}  # all else is of files
    return [
        (WRONG, f"{what} is {_digest(node, what)}, and {value} where the driver runs; {mend}")
        for what, value in (driver.made_with or {}).items()
        if checks.get(what.split()[0], "files") == check and _digest(node, what) != value
    ]


def _cuda(node: NodeHealth, driver: NodeHealth) -> Judged:
    mend = "a torch for CUDA (`pip install torch`) and a driver that is new enough mend that"
    wrong = [(WRONG, f"{node.gpu_error}; {mend}")] if node.gpu_error else []
    if node.offered > (seen := len(node.gpus)) and not wrong:
        mend = f"`ray start --num-gpus={seen}` there offers as many" if seen else mend
        offers = f"Ray offers {node.offered:g} GPUs, and torch sees {seen or 'none'}"
        wrong = [(WRONG, f"{offers}; {mend}")]
    return ", ".join(node.gpus) or "none", wrong


def _files(node: NodeHealth, driver: NodeHealth) -> Judged:
    here, there = node.absent or {}, driver.absent or {}
    wrong = [
        (
            WRONG,
            f"{file}: {why}, and the driver has it; set {REQUIRED[file].named_by} before"
            " `ray start` there",
        )
        for file, why in here.items()
        if why not in ("", STANDS_IN, None) and there.get(file) in ("", STANDS_IN)
    ]
    mend = "numbers that it makes are for a rehearsal alone; bring the real one"
    wrong += [(WARNING, f"{f}: {why}; {mend}") for f, why in here.items() if why == STANDS_IN]
    wrong += [(WRONG, f"open runs: {problem}") for problem in node.problems]
    wrong += _unequal(node, driver, "files", "copy the driver's there")
    looked = [why for why in here.values() if why is not None]
    cell = f"{looked.count('')} of {len(looked)}"
    bad = sum(code == WRONG for code, _ in wrong)
    return f"{cell}, {bad} wrong" if bad else cell, wrong


def _clock(node: NodeHealth, driver: NodeHealth) -> Judged:
    off, seconds = abs(node.clock) > CLOCK, duration(abs(node.clock))
    way = "ahead of" if node.clock > 0 else "behind"
    text = f"its clock is {seconds} {way} the driver's; let NTP set both (`chronyc makestep`)"
    return f"{way.split()[0]} {seconds}" if off else "ok", [(WARNING, text)] if off else []


def _disk(node: NodeHealth, driver: NodeHealth) -> Judged:
    free = node.free or {}
    if node.unwritable:
        return "unwritable", [(UNAVAILABLE if node.full else WRONG, node.unwritable)]
    low = [
        (
            WARNING,
            f"{amount(size)} are free in {place}; make room (`tread-lab gc` lists what can"
            " go of a lab)",
        )
        for place, size in free.items()
        if size < LEAST_FREE
    ]
    return f"{amount(min(free.values(), default=0))} free", low


def _path(node: NodeHealth, driver: NodeHealth) -> Judged:
    mend = "mount the folder of the lab at the same path on every node"
    wrong = f"it does not see what the driver writes there ({node.unseen}); {mend}"
    if node.unseen:
        return "not seen", [(WRONG, wrong)]
    return "not tried" if driver.unwritable else "ok", []


def _locks(node: NodeHealth, driver: NodeHealth) -> Judged:
    if not node.unlocked or node.unseen:
        return "not tried" if node.unseen or driver.unwritable else "ok", []
    mend = "mount the lab with locks for all nodes (NFS 4, Lustre with -o flock)"
    return "of this node", [(WRONG, f"{node.unlocked}: two nodes could write one run; {mend}")]


def _compiler(node: NodeHealth, driver: NodeHealth) -> Judged:
    text = f"{node.uncompiled}; `apt-get install gcc`: Triton and compiled blocks need it"
    return ("none", [(WARNING, text)]) if node.uncompiled else ("ok", [])


CHECKS: Mapping[str, Callable[[NodeHealth, NodeHealth], Judged]] = {
    "code": _code,
    "packages": _packages,
    "CUDA": _cuda,
    "files": _files,
    "clock": _clock,
    "disk": _disk,
    "shared path": _path,
    "locks": _locks,
    "compiler": _compiler,
}


def judge(
    nodes: Mapping[str, NodeHealth], driver: NodeHealth
) -> tuple[dict[str, dict[str, str]], list[Finding]]:
    """Return the cells of each node by check, and what is wrong, node by node."""
    cells: dict[str, dict[str, str]] = {}
    findings: list[Finding] = []
    for place, node in nodes.items():
        if node.silent:
            cells[place] = dict.fromkeys(CHECKS, "?")
            findings.append(Finding(place, "answer", node.silent, UNAVAILABLE))
            continue
        judged = {check: judge_one(node, driver) for check, judge_one in CHECKS.items()}
        cells[place] = {check: cell for check, (cell, _) in judged.items()}
        findings += [
            Finding(place, check, text, code)
            for check, (_, wrong) in judged.items()
            for code, text in wrong
        ]
    return cells, findings


def of_driver(asked: Question) -> tuple[str, NodeHealth]:
    """Return this machine's name in the table, and what it says of itself."""
    return f"driver ({platform.node()})", replace(health(asked), clock=0.0)
