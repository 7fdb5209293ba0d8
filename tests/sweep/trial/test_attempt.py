"""Claims about attempts: each is on record; the record alone decides whether another follows."""

from __future__ import annotations

import errno
import os
import signal
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.runs import batches
from tests.faults.drivers import Zygote
from tread_lab.engine import trainer
from tread_lab.engine.provenance import fingerprint, of_nodes
from tread_lab.records.durable import DiskFull
from tread_lab.records.lab import Lab, RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs import RunSpec, UserError, decode
from tread_lab.specs.evaluation import HeldoutSpec
from tread_lab.sweep.execution.executor import InlineExecutor
from tread_lab.sweep.trial import attempt as attempts
from tread_lab.sweep.trial import trial
from tread_lab.sweep.trial.attempt import NodeMismatch, WorkerInfo, counted_attempts
from tread_lab.sweep.trial.retry import decide
from tread_lab.sweep.trial.task import Task, is_complete
from tread_lab.sweep.trial.trial import Report, run_trial

Tiny = Callable[..., RunSpec]
CPU = torch.device("cpu")
ROOT = Path(__file__).parents[3]
MODEL = {"depth": 4, "width": 16, "heads": 2}


def failing(monkeypatch: pytest.MonkeyPatch, *errors: BaseException | None) -> None:
    """Training meets these errors, one an attempt, after its third step; then none."""
    left, train = list(errors), trial.train

    def broken(*arguments: Any) -> Iterator[Any]:
        error = left.pop(0) if left else None
        for progress in train(*arguments):
            if error is not None and progress.step >= 3:
                raise error
            yield progress

    monkeypatch.setattr(trial, "train", broken)


def run(lab: Lab, *tasks: Task) -> list[Report]:
    reports: list[Report] = []
    InlineExecutor(device="cpu").run(lab, tasks, reports.append)
    return reports


def endings(folder: RunFolder) -> list[str]:
    return [attempt.ended for attempt in folder.attempts.read()]


def test_one_exception_is_mended_by_another_attempt(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, RuntimeError("once"))
    assert run(lab, Task(tiny(steps=6)))[-1].phase == "completed"
    assert endings(lab.run_of(tiny(steps=6))) == ["exception", "completed"]


def test_the_same_exception_again_fails_the_run_with_its_traceback_and_others_go_on(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, *[RuntimeError("always")] * 2)
    bad, good = tiny(steps=6), tiny(steps=6, seed=1)
    reports = run(lab, Task(bad), Task(good))
    result = lab.run_of(bad).result() or {}
    assert (result["state"], result["kind"]) == ("failed", "exception")
    assert result["reason"] == "RuntimeError: always" and "in broken" in result["traceback"]
    assert [r.phase for r in reports if r.phase != "train"] == ["failed", "completed"]
    assert run(lab, Task(bad))[-1].phase == "failed"
    assert endings(lab.run_of(bad)) == ["exception", "exception"]


def test_a_lack_of_memory_is_tried_once_more_on_a_whole_device(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, *[torch.OutOfMemoryError("CUDA out of memory")] * 2)
    task, runs_per_device = Task(tiny(steps=6)), WorkerInfo(whole=False)
    with pytest.raises(torch.OutOfMemoryError):
        list(run_trial(lab, task, CPU, runs_per_device))
    assert [r.phase for r in run_trial(lab, task, CPU, runs_per_device)] == [trial.DEFERRED]
    with pytest.raises(torch.OutOfMemoryError):
        list(run_trial(lab, task, CPU, WorkerInfo(whole=True)))
    assert [r.phase for r in run_trial(lab, task, CPU, runs_per_device)][-1] == "failed"
    assert (lab.run(task.run).result() or {})["kind"] == "oom"


def test_a_failed_attempts_network_is_freed_before_the_next_begins(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
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
            raise torch.OutOfMemoryError("CUDA out of memory")
        train_step(self, batch, lr=lr)

    train_step = trainer.Trainer.train_step
    monkeypatch.setattr(trainer, "fresh_network", noted)
    monkeypatch.setattr(trainer.Trainer, "train_step", full)
    assert run(lab, Task(tiny(steps=6)))[-1].phase == "completed"
    assert endings(lab.run_of(tiny(steps=6))) == ["oom", "completed"]
    assert alive == [0, 0]


def test_a_lack_of_memory_on_the_cpu_is_recognised(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError) as found:
        torch.empty(1 << 60)
    failing(monkeypatch, found.value)
    run(lab, Task(tiny(steps=6)))
    assert endings(lab.run_of(tiny(steps=6))) == ["oom", "completed"]


def test_a_diverged_run_is_a_result_and_is_not_tried_again(lab: Lab, tiny: Tiny) -> None:
    spec = tiny(steps=20, train={"lr": 1e30, "warmup": 0})
    assert run(lab, Task(spec))[-1].phase == "diverged"
    run(lab, Task(spec))
    assert endings(lab.run_of(spec)) == ["diverged"]


def test_an_interruption_is_no_try(lab: Lab, tiny: Tiny) -> None:
    task = Task(tiny(steps=6))
    for _ in range(4):
        reports = run_trial(lab, task, CPU)
        next(reports)
        reports.close()  # type: ignore[attr-defined]
    assert run(lab, task)[-1].phase == "completed"
    assert endings(lab.run(task.run)) == ["interrupted"] * 4 + ["completed"]


def test_a_full_disk_ends_the_session_and_fails_nothing(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    tasks = [Task(tiny(steps=6, seed=seed)) for seed in (0, 1)]
    with pytest.raises(DiskFull, match="No space left on device; make room"):
        run(lab, *tasks)
    assert [lab.run(task.run).result() for task in tasks] == [None, None]
    assert [r.phase for r in run(lab, *tasks) if r.phase != "train"] == ["completed"] * 2
    assert endings(lab.run_of(tasks[0].spec)) == ["disk", "completed"]


def test_a_mistake_of_one_task_lets_the_others_go_on_and_is_said_at_the_end(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, UserError("data.path: nothing there"))
    tasks = [Task(tiny(steps=6, seed=seed)) for seed in (0, 1)]
    with pytest.raises(UserError, match="nothing there"):
        run(lab, *tasks)
    states = [lab.run(task.run).state() for task in tasks]
    assert states == ["interrupted", "completed"]


def test_what_fails_while_measuring_leaves_the_training_result(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task(tiny(steps=6), (decode(HeldoutSpec, {"images": 8, "levels": 2}),))
    with monkeypatch.context() as patch:
        patch.setattr(trial, "measuring", batches(lambda *a, **k: 1 / 0))
        last = run(lab, task)[-1]
    folder = lab.run(task.run)
    assert (last.phase, folder.state()) == ("completed", "completed")
    assert "ZeroDivisionError" in last.note and not is_complete(lab, task)
    assert [a.phase for a in folder.attempts.read()] == ["evaluate"] * 2
    later = WorkerInfo(driver="another")
    assert [r.phase for r in run_trial(lab, task, CPU, later)] == ["evaluate", "completed"]
    assert is_complete(lab, task) and len(folder.origin()) == 1


def test_the_provenance_of_an_attempt_is_taken_once(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, taken = tiny(steps=2), []
    expected = of_nodes(fingerprint(spec, "cpu"))

    def counting(*what: Any) -> dict[str, str]:
        taken.append(what)
        return fingerprint(*what)

    monkeypatch.setattr(attempts, "fingerprint", counting)
    assert [*run_trial(lab, Task(spec), CPU, WorkerInfo(expected=expected))][
        -1
    ].phase == "completed"
    assert len(taken) == 1
    assert lab.run_of(spec).attempts.read()[0].made_with == fingerprint(spec, "cpu")


KILLED = """
import os, signal, sys, torch
from pathlib import Path
from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec, decode
from tread_lab.sweep.trial.attempt import WorkerInfo
from tread_lab.sweep.trial.task import Task, is_complete
from tread_lab.sweep.trial.trial import run_trial
lab = Lab(Path(sys.argv[1]))
spec = lab.run(sys.argv[2]).spec()
worker = WorkerInfo(driver=sys.argv[3], node="n1")
for report in run_trial(lab, Task(spec), torch.device("cpu"), worker):
    if report.step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_an_open_attempt_whose_end_the_next_one_finds_out(
    lab: Lab, tiny: Tiny, zygote: Zygote
) -> None:
    spec = tiny(steps=6)
    folder = lab.run_of(spec)
    folder.create(spec)
    done = zygote.python(KILLED, str(lab.root), folder.name, "driver")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert endings(folder) == [""]
    same, other = WorkerInfo(driver="driver"), WorkerInfo(driver="other")
    gone = WorkerInfo(driver="driver", alive=frozenset({"n2"}))
    record = folder.attempts.path.read_text()
    for worker, kind in ((same, "died"), (other, "orphaned"), (gone, "lost")):
        folder.attempts.path.write_text(record)
        assert [attempt.ended for attempt in counted_attempts(folder, worker)] == [kind]
    folder.attempts.path.write_text(record)
    folder.stack_dump(1).parent.mkdir(exist_ok=True)
    folder.stack_dump(1).write_text("Timeout!")
    assert [attempt.ended for attempt in counted_attempts(folder, other)] == ["hung"]
    assert run(lab, Task(spec))[-1].phase == "completed"


def test_a_run_that_another_process_works_on_is_waited_for_and_then_taken(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
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


def test_of_two_evaluations_that_lack_something_the_first_is_said(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(folder: RunFolder, spec: HeldoutSpec, *rest: Any, **more: Any) -> None:
        raise UserError(f"no {spec.images} images")

    monkeypatch.setattr(trial, "measuring", batches(lacking))
    asked = tuple(decode(HeldoutSpec, {"images": images, "levels": 2}) for images in (8, 16))
    with pytest.raises(UserError, match=r"^no 8 images"):
        run(lab, Task(tiny(steps=2), asked))


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
        ({}, {"n1"}, "died", "process 7 on h was killed"),
        ({}, {"n2"}, "lost", "node n1 of process 7 on h has left the cluster"),
        ({"driver": "old"}, None, "orphaned", "the driver of process 7 on h ended first"),
        ({"driver": "old"}, {"n1"}, "orphaned", "the driver of process 7 on h ended first"),
        ({"driver": "old"}, {"n2"}, "lost", "node n1 of process 7 on h has left the cluster"),
    ],
)
def test_why_an_attempt_was_left_open(
    lab: Lab, facts: dict[str, str], alive: set[str] | None, ended: str, reason: str
) -> None:
    folder = left_open(lab, **facts)
    worker = WorkerInfo(driver="me", alive=None if alive is None else frozenset(alive))
    (last,) = counted_attempts(folder, worker)
    assert (last.ended, last.reason) == (ended, reason) == (
        folder.attempts.read()[0].ended, folder.attempts.read()[0].reason
    )  # fmt: skip


@pytest.mark.parametrize(("stacks", "ended"), [("where it stood", "hung"), ("", "died")])
def test_an_attempt_with_a_dump_of_its_stacks_hung(lab: Lab, stacks: str, ended: str) -> None:
    folder = left_open(lab, "exception")
    dump = folder.stack_dump(2)
    dump.parent.mkdir(parents=True)
    dump.write_text(stacks)
    last = counted_attempts(folder, WorkerInfo(driver="me"))[-1]
    assert (last.n, last.ended) == (2, ended) and dump.exists() == bool(stacks)
    if stacks:
        assert last.reason == f"process 7 on h made no progress; where it stood is in {dump}"


def test_every_driver_evaluates_a_trained_run_with_fresh_tries(lab: Lab) -> None:
    folder = left_open(lab, "exception", "oom")
    worker = WorkerInfo(driver="me")
    assert [a.ended for a in counted_attempts(folder, worker)] == ["exception", "oom", "died"]
    folder.finish(RunState.COMPLETED, step=1)
    assert [a.ended for a in counted_attempts(folder, worker)] == ["died"]
    assert counted_attempts(folder, WorkerInfo(driver="another")) == []
    assert len(folder.attempts.read()) == 3


def test_an_attempt_is_on_record_with_its_end_and_what_went_wrong(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, spec = lab.run_of(tiny()), tiny()
    worker = WorkerInfo(driver="d", node="n", whole=False)
    with attempts.attempt(folder, spec, CPU, worker) as under_way:
        (opened,) = folder.attempts.read()
        assert (opened.driver, opened.node, opened.whole, opened.ended) == ("d", "n", False, "")
        assert (opened.host, opened.pid) == (os.uname().nodename, os.getpid())
        under_way.start_evaluating()
        under_way.ended = "diverged"
    errors: list[tuple[BaseException, str, str]] = [
        (UserError("no data"), "mistake", "no data"),
        (ValueError("bad"), "exception", "ValueError: bad"),
        (KeyboardInterrupt(), "interrupted", ""),
    ]
    for error, *_ in errors:
        with pytest.raises(type(error)), attempts.attempt(folder, spec, CPU, worker):
            raise error
    first, *others = folder.attempts.read()
    assert (first.ended, first.phase, first.reason) == ("diverged", "evaluate", "")
    assert [(a.ended, a.reason) for a in others] == [(kind, why) for _, kind, why in errors]
    assert [bool(a.traceback) for a in others] == [False, True, False]
    assert [a.phase for a in others] == ["train"] * 3
    with (
        pytest.raises(DiskFull, match="No space left"),
        attempts.attempt(folder, spec, CPU, worker),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert folder.attempts.read()[-1].ended == "disk"


def test_a_worker_is_by_default_of_this_process_and_alone_on_its_device(tmp_path: Path) -> None:
    dog = attempts.Watchdog(tmp_path / "dump", tmp_path / "pulse", None)
    assert attempts.OpenAttempt(dog).runs_per_device == 1
    first, second = WorkerInfo(), WorkerInfo()
    assert first.driver == second.driver and len(first.driver) == 12
    assert attempts._session(1) != attempts._session(2)
    assert (first.node, first.alive, first.whole, first.runs_per_device, first.hang_timeout) == (
        os.uname().nodename, None, True, 1, None
    )  # fmt: skip


def test_an_attempt_has_the_watchdog_and_the_neighbours_of_its_worker(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, made = lab.run_of(tiny()), list[Any]()
    watchdog = attempts.Watchdog
    monkeypatch.setattr(attempts, "Watchdog", lambda *a: made.append(a) or watchdog(*a))  # type: ignore[func-returns-value]
    monkeypatch.setattr(attempts, "fingerprint", lambda spec, kind: {"code": f"{spec.seed}{kind}"})
    worker = WorkerInfo(runs_per_device=3, hang_timeout=60.0)
    with attempts.attempt(folder, tiny(seed=7), CPU, worker) as under_way:
        assert (under_way.runs_per_device, under_way.phase, under_way.ended) == (
            3,
            "train",
            "completed",
        )
        assert folder.heartbeat_path.exists() and folder.stack_dump(1).exists()
    assert made == [(folder.stack_dump(1), folder.heartbeat_path, 60.0)]
    (attempt,) = folder.attempts.read()
    assert (attempt.packed, attempt.made_with) == (3, {"code": "7cpu"})
    assert (attempt.ended, attempt.phase, attempt.traceback) == ("completed", "train", "")


def test_what_ended_an_attempt_is_raised_though_the_record_cannot_be_written(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
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


def test_an_error_of_the_system_that_is_no_full_disk_stays_what_it_is(lab: Lab, tiny: Tiny) -> None:
    folder = lab.run_of(tiny())
    with (
        pytest.raises(FileNotFoundError),
        attempts.attempt(folder, tiny(), CPU, WorkerInfo()),
    ):
        raise FileNotFoundError(errno.ENOENT, "gone")
    assert folder.attempts.read()[0].ended == "exception"
    with (
        pytest.raises(DiskFull, match=f"cannot write {folder.path}: quota exceeded; make room"),
        attempts.attempt(folder, tiny(), CPU, WorkerInfo()),
    ):
        raise OSError(errno.EDQUOT, "quota exceeded")


def test_an_attempt_that_had_ended_is_not_closed_again(lab: Lab) -> None:
    folder = lab.run("abc")
    folder.attempts.close(folder.attempts.open(driver="me", pid=1), "exception", reason="bad")
    text = folder.attempts.path.read_text()
    (last,) = counted_attempts(folder, WorkerInfo(driver="me"))
    assert (last.ended, last.reason) == ("exception", "bad")
    assert folder.attempts.path.read_text() == text
    assert counted_attempts(lab.run("none"), WorkerInfo()) == []


def test_a_full_disk_that_was_told_already_is_told_as_it_is(lab: Lab, tiny: Tiny) -> None:
    told = DiskFull("no room for a checkpoint")
    with (
        pytest.raises(DiskFull) as caught,
        attempts.attempt(lab.run_of(tiny()), tiny(), CPU, WorkerInfo()),
    ):
        raise told
    assert caught.value is told
    assert lab.run_of(tiny()).attempts.read()[0].ended == "disk"


@pytest.mark.parametrize("what", ["code", "package torch", "data fashion16", "weights clip-large"])
def test_a_node_that_differs_from_its_driver_trains_nothing_and_says_so_in_one_line(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, what: str
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


def test_a_process_that_died_of_a_cut_which_took_its_node_a_moment_later_is_lost(lab: Lab) -> None:
    attempts = lab.run("abc").attempts
    for driver, node in (("me", "cut"), ("me", "cut"), ("other", "cut"), ("me", "here")):
        attempts.close(attempts.open(driver=driver, node=node, pid=7, host="h"), "died")
    worker = WorkerInfo(driver="me", alive=frozenset({"here"}))
    counted = counted_attempts(lab.run("abc"), worker)
    assert [one.ended for one in counted] == ["lost", "lost", "died", "died"]
    assert counted[0].reason == "node cut of process 7 on h has left the cluster"
    assert attempts.read() == counted and decide(counted).last is None


def test_a_node_without_the_data_is_named(lab: Lab, tiny: Tiny, tmp_path: Path) -> None:
    data = {"source": "latents", "path": str(tmp_path), "channels": 4, "size": 8}
    task = Task(tiny(data={**data, "digest": "0" * 16}))
    with pytest.raises(UserError, match=r"^data.path: there are no data in"):
        list(run_trial(lab, task, CPU, WorkerInfo()))
    with pytest.raises(NodeMismatch, match=r"^node n1 \(.*\): data.path: there are no data in"):
        list(run_trial(lab, task, CPU, WorkerInfo(node="n1", expected={"code": "1"})))
