"""Callbacks of Ray Tune: they can be pickled whatever they hold, and their errors are raised."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from tests.sweep.plans import tiny
from tread_lab.engine.provenance import fingerprint, of_nodes
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError, encode
from tread_lab.specs.errors import Unavailable
from tread_lab.sweep.execution.executor import Interrupted, UserErrors
from tread_lab.sweep.execution.executors import TrialResources
from tread_lab.sweep.trial.task import ListQueue, Task
from tread_lab.sweep.trial.trial import Report

SHARE = TrialResources()


@pytest.fixture(autouse=True)
def ray(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, in a cluster of the node `here`."""
    pytest.importorskip("ray")
    from tread_lab.sweep.execution import ray_callbacks

    monkeypatch.setattr(ray_callbacks, "alive_nodes", lambda: frozenset({"here"}))
    return ray_callbacks


FINISHED = "FINISHED"  # of a searcher of Ray Tune


def searcher_of(ray: Any, queue: ListQueue, share: Any = SHARE) -> Any:
    watcher = SimpleNamespace(errors=ray.CallbackErrors(), resources=share)
    watcher.refusing, watcher.returned = {}, []
    return ray.QueueSearcher(queue, watcher)


def error_file(lab: Lab, error: Exception | None) -> str:
    """The file in which Ray Tune keeps why a trial's worker has died."""
    from ray import cloudpickle

    lab.root.mkdir(exist_ok=True)
    path = lab.root / "error.pkl"
    if error is not None:
        path.write_bytes(cloudpickle.dumps(error))
    return str(path)


class Watched:
    """A watcher of one task, with all that it tells others."""

    def __init__(
        self, lab: Lab, task: Task, error: Exception | None = None, hang_timeout: float = 7.0
    ) -> None:
        from tread_lab.sweep.execution.ray_callbacks import TrialWatcher
        from tread_lab.sweep.execution.ray_worker import SentTask

        self.task, self.stop, self.reports = task, False, list[Report]()
        self.mistakes = UserErrors()
        config = {"task": SentTask(task)}
        self.trial = SimpleNamespace(
            config=config, pickled_error_file=error_file(lab, error), status="RUNNING"
        )
        self.watcher = TrialWatcher(
            lab, self.reports.append, lambda: self.stop, self.mistakes, SHARE, hang_timeout
        )

    def starts_again(self) -> str:
        """Lose the worker; return why no task can go on."""
        self.watcher.on_trial_recover(0, [], self.trial)
        return self.watcher.unavailable

    def refuses(self, node: str, why: str) -> None:
        """As a node of an earlier version does, whose results say less."""
        report = {**vars(Report(self.task.run, "refused", 0, 20, 0.5, note=why)), "node": node}
        del report["measured"]
        self.watcher.on_trial_result(0, [], self.trial, report)

    def reports_phase(self, phase: str, note: str = "", *, done: bool = False) -> None:
        report = Report(self.task.run, phase, 3, 20, 0.5, 2, note)
        result = {**vars(report), "done": done, "trial_id": "x", "limit": 90.0}
        self.watcher.on_trial_result(0, [], self.trial, result)


def test_what_lives_in_the_driver_is_left_out_of_what_ray_writes(lab: Lab, ray: Any) -> None:
    from ray import cloudpickle

    lock = threading.Lock()  # a live display holds such, and nobody can pickle them
    with pytest.raises(TypeError, match="pickle"):
        cloudpickle.dumps(lambda report: lock)
    watcher, searcher = Watched(lab, Task(tiny())).watcher, searcher_of(ray, ListQueue([]))
    for part in (watcher, searcher):
        part.lock = lock
        assert isinstance(cloudpickle.loads(cloudpickle.dumps(part)), type(part))


def test_an_error_of_the_queue_ends_the_search_for_tasks_and_is_raised_afterwards(
    lab: Lab, ray: Any
) -> None:
    class Broken(ListQueue):
        def ended(self, task: Task) -> None:
            raise UserError("the study cannot be written")

    tasks = [Task(tiny()), Task(tiny(seed=1))]
    watcher = Watched(lab, tasks[0]).watcher
    searcher = ray.QueueSearcher(Broken(tasks), watcher)
    assert isinstance(searcher.suggest("one"), dict) and not watcher.stop_all()
    searcher.on_trial_complete("one")
    assert watcher.stop_all() and searcher.suggest("two") is not None
    assert searcher.suggest("three") == FINISHED
    with pytest.raises(UserError, match="cannot be written"):
        watcher.errors.raise_first()


def test_a_cluster_is_given_up_after_starts_in_a_row_that_attempt_neither_a_run_nor_its_parent(
    lab: Lab,
) -> None:
    child = Task(tiny(init_from={"run": encode(tiny())}))
    seen = Watched(lab, child, RuntimeError("no memory\nx"))
    assert [seen.starts_again() for _ in range(6)] == [""] * 6
    for spec in (tiny(), child.spec, child.spec):
        attempts = lab.run_of(spec).attempts
        attempts.close(attempts.open(), "died")
        assert [seen.starts_again() for _ in range(6)] == [""] * 6 and not seen.watcher.stop_all()
    assert seen.starts_again() == "Ray cannot start a worker: no memory"


def test_each_phase_of_a_report_goes_to_whom_it_concerns(lab: Lab) -> None:
    seen = Watched(lab, Task(tiny()))
    for phase in ("train", "evaluate", "completed", "failed"):
        seen.reports_phase(phase, "why")
    assert [report.phase for report in seen.reports] == ["train", "evaluate", "completed", "failed"]
    seen.reports_phase("train", done=True)  # as Ray marks what a rule of early stopping ends
    assert seen.reports.pop().phase == "stopped"
    assert seen.reports[0] == Report(seen.task.run, "train", 3, 20, 0.5, 2, "why")
    seen.watcher.on_trial_result(0, [], seen.trial, {"done": True})
    seen.reports_phase("mistake", "write it otherwise")
    assert len(seen.reports) == 4
    assert list(seen.mistakes.messages) == ["write it otherwise"]
    assert not seen.watcher.stop_all()
    seen.watcher.raise_if_stopped()
    seen.stop = True
    assert seen.watcher.stop_all()
    with pytest.raises(Interrupted):
        seen.watcher.raise_if_stopped()
    seen.stop = False
    seen.reports_phase("unavailable", "the disk is full")
    assert seen.watcher.stop_all() and len(seen.reports) == 4
    with pytest.raises(Unavailable, match="the disk is full"):
        seen.watcher.raise_if_stopped()


def test_an_error_while_reporting_stops_the_trials(lab: Lab) -> None:
    seen = Watched(lab, Task(tiny()))

    def broken(report: Report) -> None:
        raise ZeroDivisionError(report.phase)

    seen.watcher.on_report = broken
    seen.watcher.errors.raise_first()
    for phase in ("train", "evaluate"):  # of two errors the first is raised
        seen.reports_phase(phase)
        seen.watcher.on_trial_recover(0, [], seen.trial)
    assert seen.watcher.stop_all()
    with pytest.raises(ZeroDivisionError, match="train"):
        seen.watcher.errors.raise_first()


def test_a_worker_killed_for_its_memory_leaves_an_attempt_that_ended_so(lab: Lab) -> None:
    from ray.exceptions import OutOfMemoryError

    attempts = lab.run_of(tiny()).attempts
    for error, ended in (
        (RuntimeError("killed"), ""),
        (OutOfMemoryError("too much\nx"), "died"),
        (OutOfMemoryError("again"), "died"),
    ):
        if not attempts.read():
            attempts.open(pid=1)
        seen = Watched(lab, Task(tiny()), error)
        seen.watcher.on_trial_recover(0, [], seen.trial)
        assert [attempt.ended for attempt in attempts.read()] == [ended]
    assert attempts.read()[0].reason == "too much"


def test_a_searcher_hands_out_its_queue_and_hears_of_each_end_once(
    monkeypatch: pytest.MonkeyPatch, ray: Any
) -> None:
    monkeypatch.setattr(ray, "_PER_EXPERIMENT", 3)
    parent, tasks = Task(tiny()), [Task(tiny(seed=seed)) for seed in (1, 2, 3)]
    child = Task(tiny(init_from={"run": encode(tiny())}))
    ended: list[str] = []

    class Queue(ListQueue):
        def ended(self, task: Task) -> None:
            ended.append(task.run)
            super().ended(task)

    searcher = searcher_of(ray, Queue([parent, child]))
    sent = searcher.suggest("one")["task"]
    assert sent.task == parent and str(sent) == parent.run
    assert sent.expected == of_nodes(fingerprint(parent.spec, "cpu"))
    assert searcher.suggest("two") is None  # until its parent has ended
    searcher.on_trial_complete("one")
    assert ended == [parent.run] and searcher.suggest("two")["task"].task == child
    searcher.on_trial_result("two", {})
    assert searcher.suggest("three") == FINISHED
    searcher.watcher.returned += tasks[:2]  # before what is queued, in their order
    assert searcher.suggest("back")["task"].task == tasks[0]
    full = searcher_of(ray, Queue([parent, *tasks]))
    names = [full.suggest(str(k)) for k in range(4)]
    assert [isinstance(name, dict) for name in names] == [True, True, True, False]
    assert names[3] == FINISHED and not full.queue.finished
    assert full.save_to_dir("x") is None


def test_a_refused_task_goes_to_another_node_and_no_more_tasks_go_to_the_one_that_refused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, ray: Any
) -> None:
    seen = Watched(lab, Task(tiny()))
    monkeypatch.setattr(ray, "fitting_nodes", lambda share: {"bad", "good"})
    queue = ListQueue([seen.task])
    searcher = ray.QueueSearcher(queue, seen.watcher)
    place = searcher.suggest("one")["task"].place
    assert place._bound.arguments == {"bundles": [{"CPU": 1.0}], "strategy": "PACK"}
    assert searcher.suggest("two") is None  # the first may come back
    for _ in range(2):  # two workers of one node
        seen.refuses("bad", "node bad has code is 1")
    assert [(report.phase, report.note) for report in seen.reports] == [
        ("queued", "node bad has code is 1; it gets no more runs of this sweep")
    ]
    searcher.on_trial_complete("one")
    assert not queue.over and not seen.watcher.stop_all()
    sent = searcher.suggest("two")["task"]
    assert sent.task == seen.task
    assert sent.place._bound.kwargs["bundle_label_selector"] == [{"ray.io/node-id": "!in(bad)"}]
    seen.watcher.returned.clear()
    searcher.on_trial_result("two", {})
    assert searcher.suggest("three") == FINISHED
    searcher.on_trial_complete("two")
    assert queue.over
    seen.refuses("good", "node good has code is 2")
    with pytest.raises(
        Unavailable, match=r"^no node can carry out a run: node good has code is 2$"
    ):
        seen.watcher.raise_if_stopped()


@pytest.mark.parametrize(
    "task",
    [Task(tiny()), Task(tiny(init_from={"run": encode(tiny())}))],
    ids=["its own run", "the parent of its run"],
)
def test_a_worker_that_is_stopped_from_outside_is_killed_and_what_it_works_on_hung(
    lab: Lab, ray: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, task: Task
) -> None:
    """It may be silent for as long as its watchdog says, and 10 seconds more."""
    killed, reached = list[Any](), [True]
    monkeypatch.setattr(ray, "kill_on", lambda *where: killed.append(where) or reached[0])
    seen, attempts = Watched(lab, task), lab.run_of(tiny()).attempts

    def passes(seconds: float, *, look: float = 5.0) -> int:
        for _ in range(int(seconds / look)):
            clock.now += look
            seen.watcher.on_step_end(0, [seen.trial])
        return len(killed)

    seen.watcher.on_trial_start(0, [], seen.trial)
    assert passes(100.0) == 0  # before its attempt opens
    attempts.open(node="there", host="h", pid=7)
    seen.watcher.on_trial_start(0, [], seen.trial)
    assert passes(80.0) == 0  # ten times its 7 seconds
    assert passes(1000.0, look=1000.0) == 1  # of this driver's own sleep only 5 seconds count
    assert killed == [("there", 7)]
    (hung,) = attempts.read()
    assert hung.ended == "hung"
    assert hung.reason == "process 7 on h said nothing for 85 s; its driver has ended it"
    attempts.open(node="there", host="h", pid=8)
    seen.reports_phase("train")
    assert passes(100.0) == 1  # it has said that 90 may pass
    seen.trial.status = "TERMINATED"
    assert passes(100.0) == 1
    seen.trial.status = "RUNNING"
    reached[0] = False  # as of a node that is cut off, whose run is no try
    assert passes(5.0) == 2 and seen.watcher.errors.first is None
    assert [one.ended for one in attempts.read()] == ["hung", ""]


def test_without_a_limit_a_silent_worker_is_waited_for(lab: Lab, ray: Any, clock: Any) -> None:
    seen = Watched(lab, Task(tiny()), hang_timeout=0.0)
    seen.watcher.on_trial_start(0, [], seen.trial)
    opened = lab.run_of(tiny()).attempts
    opened.open(node="there", host="h", pid=7)
    for _ in range(10_000):
        clock.now += 5.0
        seen.watcher.on_step_end(0, [seen.trial])
    assert seen.watcher.errors.first is None
    assert [one.ended for one in opened.read()] == [""]


def test_the_loss_of_a_worker_is_one_line_that_says_what_follows(lab: Lab) -> None:
    from ray.exceptions import ActorUnavailableError

    seen, attempts = Watched(lab, Task(tiny())), lab.run_of(tiny()).attempts
    where = {"driver": "me", "host": "h", "pid": 7}
    seen.watcher.on_trial_recover(0, [], seen.trial)
    attempts.close(attempts.open(**where), "interrupted")  # by an earlier session
    seen.watcher.on_trial_recover(0, [], seen.trial)
    for node in ("here", "gone"):
        attempts.open(**where, node=node)
        seen.watcher.on_trial_recover(0, [], seen.trial)
        attempts.close(attempts.read()[-1], "died")
    attempts.open(**where, node="here")
    error_file(lab, ActorUnavailableError("reset by peer", b"a" * 16))
    seen.watcher.on_trial_recover(0, [], seen.trial)
    assert [one.ended for one in attempts.read()] == ["interrupted", "died", "died", "lost"]
    assert {report.phase for report in seen.reports} == {"queued"}
    assert [report.note for report in seen.reports[:4]] == [
        *["its worker did not start: the worker died"] * 2,
        "process 7 on h was killed; the run goes back to the queue, with 2 more of 3 tries",
        "node gone of process 7 on h has left the cluster; the run goes back to the queue, with"
        " all its tries",
    ]
    assert seen.reports[4].note == (
        "node here of process 7 on h cannot be reached; the run goes back to the queue, with all"
        " its tries"
    )
    child = Watched(lab, Task(tiny(init_from={"run": encode(tiny())})))
    child.watcher.on_trial_recover(0, [], child.trial)
    (report,) = child.reports  # of its parent, which it trained
    assert (report.run, report.note) == (child.task.run, seen.reports[4].note)


def test_a_queue_that_fails_ends_the_search_and_an_unknown_trial_is_nothing(ray: Any) -> None:
    class Broken(ListQueue):
        finished = False  # type: ignore[assignment]

        def next(self) -> Task | None:
            raise ZeroDivisionError

    searcher = searcher_of(ray, Broken([]))
    searcher.on_trial_complete("of an earlier experiment")
    assert searcher.errors.first is None
    assert searcher.suggest("one") == FINISHED
    assert isinstance(searcher.errors.first, ZeroDivisionError) and searcher.count == 0


def test_what_nodes_must_have_is_found_once_for_the_runs_of_one_data_set(
    lab: Lab, ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To open the index of a million files takes seconds, in which a driver does nothing else."""
    opened = Mock(side_effect=ray.fingerprint)
    monkeypatch.setattr(ray, "fingerprint", opened)
    searcher = searcher_of(ray, ListQueue([Task(tiny(seed=seed)) for seed in range(3)]))
    sent = [searcher.suggest(name)["task"] for name in "abc"]
    assert opened.call_count == 1
    assert sent[0].expected and all(task.expected == sent[0].expected for task in sent)
