"""Experiments of the executor on Ray, and what it asks of Ray Tune; no cluster is started."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sweep.plans import tiny
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError
from tread_lab.specs.errors import Unavailable
from tread_lab.specs.sweep import StopEarlySpec
from tread_lab.sweep.execution.early_stopping import GAP, RUNG, EarlyStopping
from tread_lab.sweep.execution.executor import Interrupted
from tread_lab.sweep.execution.executors import TrialResources
from tread_lab.sweep.trial.attempt import WorkerInfo
from tread_lab.sweep.trial.task import ListQueue, Task


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The executor's module, with a cluster whose nodes have 8 cores."""
    pytest.importorskip("ray")
    from tread_lab.sweep.execution import ray_cluster, ray_executor

    for name in ray_executor._ENVIRONMENT:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(ray_executor, "cluster", nullcontext)
    node = {"Alive": True, "Resources": {"CPU": 8.0}}
    monkeypatch.setattr(ray_cluster, "nodes", lambda: [node])
    return ray_executor


def experiments(
    module: Any, executor: Any, act: Callable[[Any, Task, Any], None]
) -> list[list[int]]:
    """Replace Ray Tune by `act`, two tasks an experiment; return the seeds of each."""
    calls: list[list[int]] = []

    def tune(lab: Lab, queue: Any, watcher: Any, worker: Any) -> None:
        back = [*watcher.returned]
        watcher.returned.clear()
        tasks = [task for task in (*back, queue.next(), queue.next()) if task]
        calls.append([task.spec.seed for task in tasks])
        for task in tasks:
            act(watcher, task, worker)
            queue.ended(task)

    executor._tune = tune
    return calls


def test_a_worker_is_told_what_it_has_and_ray_how_to_behave(
    module: Any, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, workers = module.RayExecutor(TrialResources(cpus=2), hang_timeout=9.0), list[Any]()
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "7")  # what the user has set stays
    experiments(module, executor, lambda watcher, task, worker: workers.append(worker))
    executor.run(lab, [Task(tiny())], print)
    (worker,) = workers
    assert (worker.runs_per_device, worker.hang_timeout) == (4, 9.0)
    assert worker.processes.count == 1
    executor.resources = TrialResources(processes=3)
    executor.run(lab, [Task(tiny())], print)
    assert workers[1].processes.count == 3
    assert os.environ["TUNE_DISABLE_SIGINT_HANDLER"] == "1"
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert os.environ["TUNE_GLOBAL_CHECKPOINT_S"] == "7"
    assert os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] == "1"  # no GPU where none is asked


@pytest.mark.parametrize(
    ("why", "end"), [("lost", Unavailable), ("queue", Interrupted), ("signal", Interrupted)]
)
def test_nothing_is_started_after_all_trials_were_stopped(
    module: Any, lab: Lab, monkeypatch: pytest.MonkeyPatch, why: str, end: type[Exception]
) -> None:
    executor, queue = module.RayExecutor(), ListQueue([Task(tiny(seed=s)) for s in (0, 1, 2)])
    signals: list[bool] = []
    monkeypatch.setattr(module, "stop_signals", lambda: nullcontext(lambda: bool(signals)))

    def stopped(watcher: Any, task: Task, worker: Any) -> None:
        watcher.unavailable = "lost" if why == "lost" else ""
        queue.stop = why == "queue"
        signals.extend([True] if why == "signal" else [])
        assert watcher.stop_all()

    calls = experiments(module, executor, stopped)
    with pytest.raises(end):
        executor.run(lab, queue, print)
    assert calls == [[0, 1]]


@pytest.mark.parametrize(
    ("of_ray", "ours"),
    [(None, None), (None, ZeroDivisionError("x")), ("x", None), ("y", ZeroDivisionError("x"))],
)
def test_an_error_of_our_own_comes_before_that_of_ray_tune_and_no_file_of_it_stays(
    module: Any, lab: Lab, monkeypatch: pytest.MonkeyPatch, of_ray: str | None, ours: Any
) -> None:
    from tread_lab.sweep.execution.ray_callbacks import CallbackErrors

    class Tuner:
        def __init__(self, *_: Any, run_config: Any, tune_config: Any) -> None:
            self.made = lab.root / "ray" / run_config.name / "x"
            assert run_config.failure_config.max_failures == -1  # none is given up
            assert tune_config.num_samples == -1  # as many as the queue has
            assert tune_config.max_concurrent_trials == 2

        def fit(self) -> None:
            assert (self.made.parent / "driver").exists()  # which workers look for
            self.made.mkdir()
            if of_ray:
                raise module.tune.TuneError(of_ray)

    monkeypatch.setattr(module.tune, "Tuner", Tuner)
    errors = CallbackErrors()
    errors.first = ours
    watcher = SimpleNamespace(errors=errors)
    executor = module.RayExecutor(TrialResources("cpu", concurrent=2))
    raised = module.tune.TuneError if ours is None else ZeroDivisionError
    with pytest.raises(raised, match="x") if of_ray or ours else nullcontext():
        executor._tune(lab, ListQueue([]), watcher, WorkerInfo())
    assert not any((lab.root / "ray").iterdir())


JUDGED = {"short": (90, None), "long": (360, None), "third": (360, None)}


@pytest.fixture
def judge(module: Any, lab: Lab) -> Callable[..., Any]:
    """A scheduler that judges runs of two lengths by a rule of these settings."""

    def make(judged: Any = JUDGED, **settings: Any) -> Any:
        early = EarlyStopping(StopEarlySpec(**settings), lab, "s", judged)
        return module.EarlyStoppingScheduler(early, module.CallbackErrors())

    return make


def verdict(judge: Any, run: str, **result: Any) -> Any:
    """What the scheduler says of a result of a run."""
    return judge.on_trial_result(None, None, {"run": run, **result})


def test_runs_are_judged_beyond_the_end_of_a_shorter_one(module: Any, judge: Any) -> None:
    made = judge(grace=30, reduction=3)
    assert made.early.rungs("short") == (30,) and made.early.rungs("long") == (30, 90)
    said = [
        [verdict(made, run, **{RUNG: r, GAP: g}) for r, g in zip((30, 90), gaps)]
        for run, gaps in (("long", (0.1, 0.1)), ("third", (0.05, 0.3)))
    ]
    assert said == [[made.CONTINUE] * 2, [made.CONTINUE, made.STOP]]


def test_the_worst_run_of_a_rung_is_stopped_and_the_sweep_notes_it(
    module: Any, judge: Any, lab: Lab
) -> None:
    made, gaps = judge(grace=30, reduction=2), {"short": 0.1, "long": 0.2, "third": 0.3}
    said = [verdict(made, run, **{RUNG: 30, GAP: gap}) for run, gap in gaps.items()]
    assert said == [made.CONTINUE, made.STOP, made.STOP]
    stopped = lab.sweep("s").stopped()
    assert {run: one.step for run, one in stopped.items()} == {"long": 30, "third": 30}
    assert verdict(made, "short") == made.CONTINUE


@pytest.mark.parametrize(
    ("settings", "gaps", "last"),
    [
        ({"reduction": 2}, (0.3, 0.1, 0.18), "CONTINUE"),
        ({"reduction": 4}, (0.3, 0.1, 0.18), "STOP"),
    ],
    ids=["one in two goes on", "one in four"],
)
def test_a_rule_has_the_settings_of_the_sweep_and_pauses_no_run(
    judge: Any, settings: dict[str, Any], gaps: tuple[float, ...], last: str
) -> None:
    made = judge(grace=30, **settings)
    said = [verdict(made, run, **{RUNG: 30, GAP: gap}) for run, gap in zip(JUDGED, gaps)]
    assert said == ["CONTINUE", "CONTINUE", last]


def test_a_verdict_that_cannot_be_noted_is_an_error_of_the_driver(
    module: Any, judge: Any, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = judge()
    monkeypatch.setattr(made.rule, "on_trial_result", lambda *result: made.STOP)
    (lab.root / "sweeps").mkdir(parents=True)
    (lab.root / "sweeps" / "s").touch()  # where a folder should be
    assert verdict(made, "long", **{RUNG: 30}) == made.CONTINUE
    assert made.errors.first is None
    assert verdict(made, "long", **{RUNG: 30, GAP: 0.5}) == made.STOP
    assert isinstance(made.errors.first, UserError)


def test_a_task_that_comes_back_as_the_queue_is_empty_has_an_experiment_of_its_own(
    module: Any, lab: Lab
) -> None:
    executor, returned = module.RayExecutor(), list[Task]()

    def return_once(watcher: Any, task: Task, worker: Any) -> None:
        if not returned:
            returned.append(task)
            watcher.returned.append(task)

    calls = experiments(module, executor, return_once)
    executor.run(lab, [Task(tiny(seed=seed)) for seed in (3, 4)], print)
    assert calls == [[3, 4], [3]]


def test_mistakes_of_tasks_are_raised_after_the_last_one(module: Any, lab: Lab) -> None:
    executor = module.RayExecutor()

    def mistaken(watcher: Any, task: Task, worker: Any) -> None:
        watcher.user_errors.add(f"seed {task.spec.seed} is wrong")

    calls = experiments(module, executor, mistaken)
    with pytest.raises(UserError, match=r"^seed 0 is wrong \(and 2 more like it\)$"):
        executor.run(lab, [Task(tiny(seed=seed)) for seed in (0, 1, 2)], print)
    assert calls == [[0, 1], [2]]
