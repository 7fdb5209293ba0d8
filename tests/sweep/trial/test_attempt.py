"""Claims about attempts: each is on record; the record alone decides whether another follows."""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.runs import batches
from tests.sweep.plans import carry_out, tiny
from tread_lab.engine import trainer
from tread_lab.engine.provenance import fingerprint, of_nodes
from tread_lab.engine.train import Progress
from tread_lab.records.durable import DiskFull
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs import RunSpec, UserError, decode
from tread_lab.specs.evaluation import HeldoutSpec
from tread_lab.sweep.trial import attempt as attempts
from tread_lab.sweep.trial import trial
from tread_lab.sweep.trial.attempt import NodeMismatch, WorkerInfo, counted_attempts
from tread_lab.sweep.trial.retry import last_try
from tread_lab.sweep.trial.task import Task, is_complete
from tread_lab.sweep.trial.trial import run_trial

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[3]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Training is six made-up steps, which meet these errors, one an attempt; then none."""

    def meet(*errors: BaseException) -> None:
        left = list(errors)

        def train(*_: Any) -> Iterator[Progress]:
            error = left.pop(0) if left else None
            for step in range(1, 7):
                if error is not None and step == 3:
                    raise error
                yield Progress(step, 6, 0.5, seconds=0.1 * step)

        monkeypatch.setattr(trial, "train", train)

    return meet


def endings(folder: RunFolder) -> list[str]:
    return [attempt.ended for attempt in folder.attempts.read()]


def test_what_went_wrong_once_is_mended_by_another_attempt(
    lab: Lab, failing: Callable[..., None]
) -> None:
    task = Task(tiny(steps=6))
    failing(RuntimeError("once"))
    assert carry_out(lab, task)[-1].phase == "completed"
    assert endings(lab.run(task.run))[-2:] == ["exception", "completed"]


@pytest.mark.fault(
    7,
    survived="one line names `execution.micro_batch`; with a smaller one the command continues",
)
def test_lack_of_memory_names_micro_batch(lab: Lab, failing: Callable[..., None]) -> None:
    """Task 9: it is not tried again, and a smaller micro-batch continues the run."""
    with pytest.raises(RuntimeError) as no_memory:
        torch.empty(1 << 60)  # a lack of memory on the CPU has no class of its own
    failing(torch.OutOfMemoryError("CUDA out of memory"), no_memory.value)
    task = Task(tiny(steps=6))
    for tries in (1, 2):
        with pytest.raises(UserError, match=r"^execution\.micro_batch: .*got 8: .*Try 4"):
            carry_out(lab, task)
        assert endings(lab.run(task.run)) == ["oom"] * tries
    smaller = Task(tiny(steps=6, execution={"micro_batch": 4}))
    assert smaller.run == task.run
    assert carry_out(lab, smaller)[-1].phase == "completed"
    assert endings(lab.run(task.run)) == ["oom", "oom", "completed"]


def test_a_failed_attempts_network_is_freed_before_the_next_begins(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a lack of memory would meet the retry, too."""
    networks: list[weakref.ref[torch.nn.Module]] = []
    alive: list[int] = []
    fresh = trainer.fresh_network

    def noted(spec: RunSpec) -> torch.nn.Module:
        alive.append(sum(network() is not None for network in networks))
        network = fresh(spec)
        networks.append(weakref.ref(network))
        return network

    def full(self: trainer.Trainer, batch: Any, *, lr: float) -> None:
        if len(networks) == 1:
            raise RuntimeError("once")
        train_step(self, batch, lr=lr)

    train_step = trainer.Trainer.train_step
    monkeypatch.setattr(trainer, "fresh_network", noted)
    monkeypatch.setattr(trainer.Trainer, "train_step", full)
    assert carry_out(lab, Task(tiny(steps=6)))[-1].phase == "completed"
    assert endings(lab.run_of(tiny(steps=6))) == ["exception", "completed"]
    assert alive == [0, 0]


def test_a_full_disk_ends_the_session_and_fails_nothing(
    lab: Lab, failing: Callable[..., None]
) -> None:
    failing(OSError(errno.ENOSPC, "No space left on device"))
    tasks = [Task(tiny(steps=6, seed=seed)) for seed in (0, 1)]
    with pytest.raises(DiskFull, match="No space left on device; make room"):
        carry_out(lab, *tasks)
    assert [lab.run(task.run).result() for task in tasks] == [None, None]
    assert [r.phase for r in carry_out(lab, *tasks) if r.phase != "train"] == ["completed"] * 2
    assert endings(lab.run_of(tasks[0].spec)) == ["disk", "completed"]


def test_a_mistake_of_one_task_lets_the_others_go_on_and_is_said_at_the_end(
    lab: Lab, failing: Callable[..., None]
) -> None:
    failing(UserError("data.path: nothing there"))
    tasks = [Task(tiny(steps=6, seed=seed)) for seed in (0, 1)]
    with pytest.raises(UserError, match="nothing there"):
        carry_out(lab, *tasks)
    states = [lab.run(task.run).state() for task in tasks]
    assert states == ["pending", "completed"]  # made-up steps write nothing


def test_what_fails_while_measuring_leaves_the_training_result(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task(tiny(steps=6), (decode(HeldoutSpec, {"images": 8, "levels": 2}),))
    with monkeypatch.context() as patch:
        patch.setattr(trial, "measuring", batches(lambda *a, **k: 1 / 0))
        last = carry_out(lab, task)[-1]
    folder = lab.run(task.run)
    assert (last.phase, folder.state()) == ("completed", "completed")
    assert "ZeroDivisionError" in last.note and not is_complete(lab, task)
    assert [a.phase for a in folder.attempts.read()] == ["evaluate"] * 2
    later = WorkerInfo(driver="another")
    phases = dict.fromkeys(report.phase for report in run_trial(lab, task, CPU, later))
    assert [*phases] == ["evaluate", "completed"]
    assert is_complete(lab, task) and len(folder.origin()) == 1


def test_a_run_that_another_process_works_on_is_waited_for_and_then_taken(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_POLL_SECONDS", 0.01)
    task = Task(tiny(steps=6))
    reports = run_trial(lab, task, CPU)
    with lab.run(task.run).lock():
        assert "in use by another process" in next(reports).note
        assert next(reports).phase == "train"
    assert list(reports)[-1].phase == "completed"
    with lab.run(task.run).lock():
        second = run_trial(lab, task, CPU)
        next(second)
    assert [report.phase for report in second] == ["completed"]
    assert endings(lab.run(task.run)) == ["completed"]


def left_open(lab: Lab, *earlier: str, **facts: Any) -> RunFolder:
    """The folder of a run whose last attempt was never closed."""
    folder = lab.run("abc")
    for ended in earlier:
        folder.attempts.close(folder.attempts.open(driver="old", pid=1), ended)
    folder.attempts.open(**{"driver": "me", "node": "n1", "host": "h", "pid": 7, **facts})
    return folder


@pytest.mark.parametrize(
    ("facts", "alive", "ended", "reason"),
    [
        ({}, None, "died", "process 7 on h was killed"),
        ({"dump": ""}, None, "died", "process 7 on h was killed"),
        ({"dump": "Timeout!"}, None, "hung", "process 7 on h made no progress; where it stood is"),
        ({"dump": "x", "driver": "old"}, {"n2"}, "hung", "process 7 on h made no progress; where"),
        ({}, {"n1"}, "died", "process 7 on h was killed"),
        ({}, {"n2"}, "lost", "node n1 of process 7 on h has left the cluster"),
        ({"driver": "old"}, {"n1"}, "orphaned", "the driver of process 7 on h ended first"),
        ({"driver": "old"}, {"n2"}, "lost", "node n1 of process 7 on h has left the cluster"),
    ],
)
def test_why_an_attempt_was_left_open(
    lab: Lab, facts: dict[str, str], alive: set[str] | None, ended: str, reason: str
) -> None:
    stacks = facts.get("dump")
    folder = left_open(lab, **{k: v for k, v in facts.items() if k != "dump"})
    dump = folder.stack_dump(1)
    if stacks is not None:
        dump.parent.mkdir(parents=True)
        dump.write_text(stacks)
    worker = WorkerInfo(driver="me", alive=None if alive is None else frozenset(alive))
    (last,) = counted_attempts(folder, worker)
    assert last.ended == ended and last.reason.startswith(reason)
    assert folder.attempts.read() == [last] and dump.exists() == bool(stacks)


def test_every_driver_evaluates_a_trained_run_with_fresh_tries(lab: Lab) -> None:
    folder = left_open(lab, "exception", "oom")
    worker = WorkerInfo(driver="me")
    assert [a.ended for a in counted_attempts(folder, worker)] == ["exception", "oom", "died"]
    folder.finish(RunState.COMPLETED, step=1)
    assert [a.ended for a in counted_attempts(folder, worker)] == ["died"]
    assert counted_attempts(folder, WorkerInfo(driver="another")) == []
    text = folder.attempts.path.read_text()
    assert counted_attempts(lab.run("none"), worker) == [] != counted_attempts(folder, worker)
    assert folder.attempts.path.read_text() == text  # what had ended is not closed again
    assert len(folder.attempts.read()) == 3


@pytest.mark.parametrize(
    ("error", "raised", "ended", "reason"),
    [
        (None, None, "completed", ""),
        (UserError("no data"), "^no data$", "mistake", "no data"),
        (ValueError("bad"), "^bad$", "exception", "ValueError: bad"),
        (KeyboardInterrupt(), "^$", "interrupted", ""),
        (FileNotFoundError(errno.ENOENT, "gone"), "gone", "exception", None),
        (OSError(errno.ENOSPC, "No space left"), "abc: No space left; make room", "disk", None),
        (DiskFull("no room for a file"), "^no room for a file$", "disk", "no room for a file"),
    ],
)
def test_an_attempt_is_on_record_with_its_worker_its_end_and_what_went_wrong(
    error: BaseException | None, raised: str | None, ended: str, reason: str | None, lab: Lab
) -> None:
    folder, worker = lab.run("abc"), WorkerInfo(driver="d", node="n", runs_per_device=3)
    kind = DiskFull if ended == "disk" else type(error)
    with (
        nullcontext() if error is None else pytest.raises(kind, match=raised),  # type: ignore[type-var]
        attempts.attempt(folder, tiny(), CPU, worker) as under_way,
    ):
        (opened,) = folder.attempts.read()
        assert folder.heartbeat_path.exists() and folder.stack_dump(1).exists()
        under_way.start_evaluating()
        if error is not None:
            raise error
    assert (opened.driver, opened.node, opened.runs_per_device) == ("d", "n", 3)
    assert (opened.host, opened.pid) == (os.uname().nodename, os.getpid())
    assert (opened.ended, opened.fingerprint) == ("", fingerprint(tiny(), "cpu"))
    (closed,) = folder.attempts.read()
    assert (closed.ended, closed.phase) == (ended, "evaluate")
    assert reason is None or closed.reason == reason
    traced = isinstance(error, ValueError | OSError) and not isinstance(error, UserError)
    assert bool(closed.traceback) == traced


def test_what_ended_an_attempt_is_raised_though_the_record_cannot_be_written(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lab.run_of(tiny())

    def full(*_: Any, **facts: Any) -> None:
        raise DiskFull("no room for a line")

    monkeypatch.setattr(type(folder.attempts), "close", full)
    with (
        pytest.raises(ValueError, match="bad"),
        attempts.attempt(folder, tiny(), CPU, WorkerInfo()),
    ):
        raise ValueError("bad")


@pytest.mark.parametrize("what", ["code", "weights clip-large"])
def test_a_node_that_differs_from_its_driver_trains_nothing_and_says_so_in_one_line(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    task, folder = Task(tiny(steps=4)), lab.run_of(tiny(steps=4))
    expected = of_nodes(fingerprint(task.spec, "cpu"))
    assert {"code", "data fashion16", "held-out data fashion16", "package torch"} <= expected.keys()
    node = WorkerInfo(node="n1", expected={**expected, what: "another"})
    monkeypatch.setattr(trial, "train", lambda *_: pytest.fail("no step is trained"))
    with pytest.raises(NodeMismatch) as caught:
        list(run_trial(lab, task, CPU, node))
    line = str(caught.value)
    assert f"{what} is {expected.get(what, 'absent')}, and another where the driver runs" in line
    assert line.startswith(f"node n1 ({os.uname().nodename}) has code in {ROOT / 'tread_lab'}: ")
    assert not folder.path.exists()  # no attempt, no lock, no folder
    monkeypatch.undo()
    assert list(run_trial(lab, task, CPU, WorkerInfo(expected=expected)))[-1].phase == "completed"


def test_a_node_that_does_not_see_the_lab_trains_nothing(lab: Lab) -> None:
    expected, token = of_nodes(fingerprint(tiny(), "cpu")), lab.root / "ray" / "driver"
    with pytest.raises(NodeMismatch, match=rf"^node n1 \(.*\) does not see {token}, which the dr"):
        list(
            run_trial(lab, Task(tiny()), CPU, WorkerInfo(node="n1", expected=expected, token=token))
        )
    assert not lab.root.exists()


def test_a_process_that_died_of_a_cut_which_took_its_node_a_moment_later_is_lost(lab: Lab) -> None:
    attempts = lab.run("abc").attempts
    for driver, node in (("me", "cut"), ("me", "cut"), ("other", "cut"), ("me", "here")):
        attempts.close(attempts.open(driver=driver, node=node, pid=7, host="h"), "died")
    worker = WorkerInfo(driver="me", alive=frozenset({"here"}))
    counted = counted_attempts(lab.run("abc"), worker)
    assert [one.ended for one in counted] == ["lost", "lost", "died", "died"]
    assert counted[0].reason == "node cut of process 7 on h has left the cluster"
    assert attempts.read() == counted and last_try(counted) is None


def test_a_node_without_the_data_is_named(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"source": "latents", "path": str(tmp_path), "channels": 4, "size": 8}
    task = Task(tiny(data={**data, "digest": "0" * 16}))
    with pytest.raises(UserError, match=r"^data.path: there are no data in"):
        list(run_trial(lab, task, CPU, WorkerInfo()))
    with pytest.raises(NodeMismatch, match=r"^node n1 \(.*\): data.path: there are no data in"):
        list(run_trial(lab, task, CPU, WorkerInfo(node="n1", expected={"code": "1"})))
    monkeypatch.setattr(attempts, "check_content", lambda *_: None)
    monkeypatch.setattr(attempts, "fingerprint", lambda *_: {"code": "1", "data x": "2"})
    with pytest.raises(NodeMismatch, match=rf", data in {tmp_path}: data x is 2, and 3 where"):
        list(run_trial(lab, task, CPU, WorkerInfo(expected={"code": "1", "data x": "3"})))
