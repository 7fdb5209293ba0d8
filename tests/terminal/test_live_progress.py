"""Progress of a sweep: what counts as done, and how the time left follows from it."""

from __future__ import annotations

import io
import time
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from rich.console import Console
from rich.progress import Progress

from tests.pretender import Pretender
from tests.sweep.plans import tiny
from tests.terminal.conftest import Screen
from tread_lab.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.specs import decode
from tread_lab.specs.evaluation import HeldoutSpec
from tread_lab.sweep.plan.forecast import evaluation_flops_left, task_flops
from tread_lab.sweep.run_task import QUEUED, Report, run_task
from tread_lab.sweep.task import Task
from tread_lab.terminal import live_progress
from tread_lab.terminal.console import answers
from tread_lab.terminal.live_progress import WorkDone, run_progress, sweep_progress

HELDOUT = decode(HeldoutSpec, {"images": 32, "levels": 4})


def report(task: Task, phase: str, step: int) -> Report:
    return Report(task.run, phase, step, task.spec.train.steps, 0.5)


def test_training_and_measuring_count_as_much_as_they_take(lab: Lab) -> None:
    task = Task(tiny(steps=6), (HELDOUT,))
    trained = cost(task.spec).train_flops / task_flops(task)
    assert 0.1 < trained < 0.9
    work = WorkDone([task], [task], lab)
    assert work.fraction() == 0 and work.counts() == "0/1 ended"
    work.record(report(task, "train", 3))
    assert work.fraction() == pytest.approx(trained / 2)
    work.record(report(task, "train", 6))
    assert work.fraction() == pytest.approx(trained)
    work.record(replace(report(task, "evaluate", 6), measured=0.25))
    assert work.fraction() == pytest.approx(trained + (1 - trained) / 4)
    Pretender(lab).run([task])
    work.record(report(task, "evaluate", 6))
    assert work.fraction() == pytest.approx(1)
    work.record(report(task, "completed", 6))
    assert work.fraction() == 1 and work.summary() == "1/1 ended: 1 completed"


def test_what_earlier_sessions_did_is_neither_progress_nor_left(lab: Lab) -> None:
    measured, fresh = Task(tiny(steps=6), (HELDOUT,)), Task(tiny(steps=6, seed=1))
    Pretender(lab).run([measured])
    half = Task(measured.spec, (HELDOUT, decode(HeldoutSpec, {"images": 48, "levels": 4})))
    work = WorkDone([half, fresh], [half, fresh], lab)
    work.record(report(fresh, "completed", 6))
    still = evaluation_flops_left(lab, half)
    assert 0 < still < task_flops(half) - cost(half.spec).train_flops
    assert work.fraction() == pytest.approx(1 - still / (still + task_flops(fresh)))


@pytest.mark.parametrize(
    ("steps", "slots", "reports"),
    [
        # Seconds since the first report, task, phase, step -> the time left; a step takes a second.
        # The longest run under way is waited for.
        ([1000, 10], 2, [(0, 0, "train", 0, "..."), (10, 1, "completed", 10, None),
                         (10, 0, "train", 590, 410 * 10 / 300)]),
        # Two runs at once.
        ([1000] * 4, 2, [(0, 0, "train", 0, None), (0, 1, "train", 0, None),
                         (500, 0, "train", 500, None), (500, 1, "train", 500, 1500.0)]),
        # Nothing is said before something is seen to move,
        ([1000], 1, [(0, 0, "train", 100, "..."), (60, 0, "train", 100, "..."),
                     (60, 0, "train", 200, 480.0)]),
        # for five seconds, and half a percent.
        ([1000], 1, [(0, 0, "train", 0, "..."), (4.9, 0, "train", 500, "...")]),
        ([1000], 1, [(0, 0, "train", 0, "..."), (5.0, 0, "train", 500, 5.0)]),
        ([1000], 1, [(0, 0, "train", 0, "..."), (60.0, 0, "train", 4, "...")]),
        ([1000], 1, [(0, 0, "train", 0, "..."), (60.0, 0, "train", 5, 60 * 199.0)]),
    ],
)  # fmt: skip
def test_time_left_follows_what_is_seen(
    steps: list[int], slots: int, reports: list[Any], lab: Lab, clock: Any
) -> None:  # fmt: skip
    tasks = [Task(tiny(steps=count, seed=seed)) for seed, count in enumerate(steps)]
    work = WorkDone(tasks, tasks, lab, slots=slots)
    assert work.summary() == f"0/{len(steps)} ended, ... left"
    for seconds, number, phase, step, left in reports:
        clock.now = 100.0 + seconds
        work.record(report(tasks[number], phase, step))
        said = live_progress.duration(left) if isinstance(left, float) else left
        assert left is None or work.time_left() == said
    assert WorkDone([], [], lab).fraction() == 1


def test_a_run_that_goes_on_from_before_its_last_entry_has_not_lost_what_is_done(lab: Lab) -> None:
    task = Task(tiny(steps=20))
    with closing(run_task(lab, task, torch.device("cpu"))) as steps:  # type: ignore[type-var]
        while next(steps).step < 15:
            pass
    work = WorkDone([task], [task], lab)
    work.record(report(task, "train", 11))
    assert work.fraction() == 0
    work.record(report(task, "train", 14))
    assert work.fraction() == pytest.approx(3 / 9)
    work.record(report(task, "train", 20))
    assert work.fraction() == pytest.approx(1)


def test_a_page_reads_the_time_left_of_the_terminal_while_the_driver_works(
    lab: Lab, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, sweep = Task(tiny(steps=4)), lab.sweep("placement")
    sweep.path.mkdir(parents=True)
    plan: Any = SimpleNamespace(name="placement", possible_trials=(), possible_tasks=(task,))
    assert sweep.time_left() == ""
    with sweep_progress(plan, [task], lab, 1) as watch:
        watch(report(task, "train", 2))
        assert sweep.time_left() == "..."
        clock.now += 6
        watch(report(task, "train", 3))
        assert sweep.time_left() == "6 s"
        later = time.time() + 61  # the driver has said nothing for a minute
        monkeypatch.setattr(
            "tread_lab.records.sweep_folder.time", SimpleNamespace(time=lambda: later)
        )
        assert sweep.time_left() == ""
    assert not sweep.time_left_path.exists()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(live_progress, "say", lines.append)
    return lines


def test_a_log_has_a_line_every_20_seconds_and_one_for_each_end(
    lab: Lab, clock: Any, said: list[str]
) -> None:
    task = Task(tiny(steps=10, routes=["1->2"]))
    with run_progress([task], lab) as watch:
        for seconds, step in ((0.0, 2), (19.5, 3), (20.0, 4), (39.5, 5), (40.0, 6)):
            clock.now = 100.0 + seconds
            watch(report(task, "train", step))
        watch(Report(task.run, QUEUED, 6, 10, float("nan"), note="its worker was killed"))
        watch(Report(task.run, "failed", 6, 10, 0.25, note="out of memory\nmore"))
        watch(Report(task.run, "diverged", 6, 10, float("nan")))
    assert said == [
        "40%, 0/1 ended, 60 s left",
        "60%, 0/1 ended, 40 s left",
        "1->2 s=0.5 seed 0: its worker was killed",
        "1->2 s=0.5 seed 0: failed, training loss 0.2500 (1/1 ended: 1 failed): out of memory",
        "1->2 s=0.5 seed 0: diverged (1/1 ended: 1 diverged)",
    ]


def test_an_overflow_is_said_once_for_each_run(lab: Lab, said: list[str]) -> None:
    tasks = [Task(tiny(steps=10, seed=seed)) for seed in (0, 1)]
    work = WorkDone(tasks, tasks, lab, {tasks[0].run: "first", tasks[1].run: "second"})
    for number, overflows in ((0, 0), (0, 1), (0, 2), (1, 3)):
        work.record(Report(tasks[number].run, "train", 1, 10, 0.5, overflows))
    assert said == [
        "first: a step overflowed in fp16 and was skipped",
        "second: a step overflowed in fp16 and was skipped",
    ]


class Bars(Progress):
    """The bars of the terminal, to be looked at while a run goes on."""

    shown: ClassVar[Bars]

    def __init__(self, *columns: Any, **options: Any) -> None:
        super().__init__(*columns, get_time=lambda: 0.0, **options)
        Bars.shown = self


@pytest.mark.parametrize("width", [80, 79])
def test_a_terminal_has_a_bar_for_all_and_one_for_each_run_under_way(
    width: int, lab: Lab, clock: Any, monkeypatch: pytest.MonkeyPatch, screen: Screen
) -> None:
    """Where it is narrow, texts are folded and take the room of the bars."""
    printed = io.StringIO()
    terminal = Console(force_terminal=True, color_system=None, width=width, file=printed)
    monkeypatch.setattr(live_progress, "notices", terminal)
    monkeypatch.setattr(live_progress, "Progress", Bars)
    labels = "dense seed 0", "2->8 s=0.5 precision=bf16 bypass=sprint seed 0"
    one, other = (Task(tiny(steps=10, seed=seed)) for seed in (0, 1))
    by_seed = dict(zip((0, 1), labels))
    monkeypatch.setattr(live_progress, "run_label", lambda spec: by_seed[spec.seed])
    screen.width = width
    with run_progress([one, other], lab) as watch:
        screen("at first", lambda: answers.print(Bars.shown.get_renderable()))
        for title, task, phase, step in (
            ("half", one, "train", 5),
            ("trained", one, "train", 10),
            ("evaluations", one, "evaluate", 10),
            ("the other fails", other, "failed", 2),
            ("and is tried again", other, "train", 3),
            ("the first ends", one, "completed", 10),
            ("the other fails again", other, "failed", 3),
        ):
            watch(report(task, phase, step))
            screen(title, lambda: answers.print(Bars.shown.get_renderable()))
    end = "dense seed 0: completed, training loss 0.5000 (1/2 ended: 1 completed)"
    assert end in printed.getvalue()


def test_a_run_that_was_not_open_counts_from_its_first_report(lab: Lab) -> None:
    """One that has ended by then counts whole: a search has just added it."""
    first, later, ended = (Task(tiny(steps=n, seed=k)) for k, n in enumerate((4000, 1000, 1000)))
    work = WorkDone([first], [later, ended], lab)
    for task, phase, step, done in (
        (later, "train", 500, 0.0),
        (later, "train", 600, 0.025),
        (ended, "completed", 1000, 0.275),
    ):
        work.record(report(task, phase, step))
        assert work.fraction() == pytest.approx(done)
    assert work.counts() == "1/2 ended: 1 completed"  # more than were foreseen
