"""The sweep command draws its figures again when runs were added, and reopens only what it runs."""

from __future__ import annotations

import json
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tread_lab.analysis.figures import catalogue
from tread_lab.cli import main
from tread_lab.commands import sweep
from tread_lab.commands.options import Sweep
from tread_lab.commands.sweep import check_price
from tread_lab.records import lab as records
from tread_lab.records import suggestions
from tread_lab.records.lab import LOCK, Lab
from tread_lab.records.locks import is_held
from tread_lab.records.status import RunState
from tread_lab.specs import UserError
from tread_lab.specs.errors import Unavailable
from tread_lab.specs.sweep import BudgetSpec
from tread_lab.sweep.execution.executor import Interrupted
from tread_lab.sweep.plan.planned_sweep import load_sweep
from tread_lab.sweep.plan.storage import store_plan

OPTIONS = ["--root", "lab", "--executor", "inline", "--device", "cpu", "--no-mlflow"]
BOTH = "axes.route=['2->8','2->7']"


def ended(*overrides: str, state: RunState) -> Lab:
    """A lab in which every run of the sweep has ended."""
    Path("s.yaml").write_text(json.dumps({"experiment": "tiny", "axes": {"route": ["2->8"]}}))
    planned = load_sweep("s.yaml", "evaluate=[]", *overrides, path="lab")
    for trial in planned.plan.trials:
        folder = planned.lab.run(trial.run)
        folder.create(trial.spec)
        folder.finish(state, step=1, kind="exception" if state is RunState.FAILED else "")
    return planned.lab


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sweeps whose figures were drawn, in order; an empty folder stands for figures."""
    names: list[str] = []

    def write_figures(lab: Lab, name: str) -> list[Path]:
        lab.sweep(name).figures.mkdir(exist_ok=True)
        lab.sweep(name).drawn_path.touch()
        names.append(name)
        return []

    monkeypatch.setattr("tread_lab.analysis.figures.catalogue.write_figures", write_figures)
    return names


def test_figures_are_drawn_again_after_runs_that_were_open(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, drawn: list[str]
) -> None:
    lab = ended(state=RunState.DIVERGED)
    command = ["sweep", "s.yaml", "evaluate=[]", *OPTIONS]
    assert main(command) == 0
    (run, *_) = load_sweep("s.yaml", "evaluate=[]", path="lab").plan.tasks
    lab.run(run.run).reopen()
    finish = lambda *_: lab.run(run.run).finish(RunState.DIVERGED, step=1)  # noqa: E731
    monkeypatch.setattr("tread_lab.commands.sweep._execute", finish)
    assert main(command) == 0
    assert drawn == ["s", "s"]


def test_figures_that_were_half_drawn_are_drawn_again(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = ended(state=RunState.COMPLETED)
    command, names = ["sweep", "s.yaml", "evaluate=[]", *OPTIONS], list[str]()

    def interrupted(figure: object, folder: Path, name: str) -> list[Path]:
        folder.mkdir(exist_ok=True)
        names.append(name)
        raise KeyboardInterrupt

    def saved(figure: object, folder: Path, name: str) -> list[Path]:
        names.append(name)
        return []

    one = [("", SimpleNamespace(figure=None, name="a"))]
    monkeypatch.setattr(catalogue, "all_figures", lambda records: one)
    for ended_by, drawing in ((130, interrupted), (0, saved)):
        monkeypatch.setattr(catalogue, "save", drawing)
        assert main(command) == ended_by
        assert lab.sweep("s").drawn is (ended_by == 0)
    assert names == ["a", "a"] and main(command) == 0 and names == ["a", "a"]


def test_figures_are_drawn_again_when_an_extension_adds_finished_runs(
    in_folder: Path, drawn: list[str]
) -> None:
    ended(BOTH, state=RunState.DIVERGED)
    command = ["sweep", "s.yaml", "evaluate=[]", *OPTIONS]
    for _ in range(2):
        assert main(command) == 0
        assert drawn == ["s"]
    assert main([*command, BOTH, "--extend"]) == 0
    assert drawn == ["s", "s"]


def test_the_files_of_each_run_are_checked_once(
    in_folder: Path, drawn: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, checked, changed = ended(state=RunState.COMPLETED), list[str](), records.changed_files

    def counted(folder: Path, stored: Any) -> list[str]:
        checked.append(folder.name)
        return changed(folder, stored)

    monkeypatch.setattr(records, "changed_files", counted)
    assert main(["sweep", "s.yaml", "evaluate=[]", *OPTIONS]) == 0
    assert sorted(checked) == [folder.name for folder in lab.runs()]


def test_a_plan_reopens_no_failed_run(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = ended(state=RunState.FAILED)
    command = ["sweep", "s.yaml", "evaluate=[]", *OPTIONS, "--plan", "--retry-failed"]
    assert main(command) == 0
    assert "running 2 failed runs again" in capsys.readouterr().err
    states = [lab.run(path.name).state() for path in (lab.root / "runs").iterdir()]
    assert states == [RunState.FAILED] * 2


@pytest.mark.parametrize(
    ("price", "plan", "said"),
    [
        (None, False, ""),
        (2.5, True, ""),
        (2.5, False, "of a plan only; add --plan"),
        (0.0, True, "a positive number, got 0"),
        (-1.0, True, "a positive number, got -1"),
        (float("inf"), True, "a positive number, got inf"),
        (float("nan"), True, "a positive number, got nan"),
    ],
)
def test_a_price_is_a_positive_number_of_a_plan(price: float | None, plan: bool, said: str) -> None:
    if said:
        with pytest.raises(UserError, match=f"^--price-per-hour: {said}$"):
            check_price(price, plan=plan)
    else:
        check_price(price, plan=plan)


def test_a_plan_that_is_asked_for_says_disk_and_price_and_writes_nothing(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("s.yaml").write_text(json.dumps({"experiment": "tiny", "axes": {"route": ["2->8"]}}))
    command = ["sweep", "s.yaml", "--root", "lab", "--device", "cpu", "--device-rates", "H200"]
    assert main([*command, "--plan", "--price-per-hour", "2"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    for start in ("disk: at most ", "parameters: "):
        assert any(line.startswith(start) for line in lines)
    assert any("device-hours of H200" in line and "at 2 an hour" in line for line in lines)
    large = ["experiment=b2_imagenet256", "model=DiT-XL/2", "data.path=later", "precision=tf32"]
    command = ["sweep", "s.yaml", "--root", "lab", "--device-rates", "H200"]
    assert main([*command, "--plan", "--gpus", "0.5", "--concurrent", "8", *large]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 runs open, 8 at once" in said
    assert "256 images a pass, and H200 has 148 GB, which 2 runs share: too much;" in said
    assert not Path("lab").exists()
    assert main(command) == 2
    assert "--device-rates: forecasts only; add --plan" in capsys.readouterr().err
    assert main([*command, "--plan", "--price-per-hour", "0"]) == 2


def launch(lab: Any, **more: Any) -> Any:
    """A sweep `s` that is ready to run, of which functions of the command read these parts."""
    options = Sweep(file="s.yaml", as_json=True, hang_timeout=9.0)
    plan = SimpleNamespace(name="s", stop_early=None, budget=None)
    kind = SimpleNamespace(side_by_side=True)
    devices = SimpleNamespace(type="cpu", slots=3)
    made = {"options": options, "lab": lab, "plan": plan, "begun": ("begun",),
            "open_tasks": ("task",), "kind": kind, "resources": "resources", "devices": devices,
            "forecast": SimpleNamespace(), "whole": {"w"}}  # fmt: skip
    return SimpleNamespace(**{**made, **more})


@pytest.mark.parametrize("unfinished", [True, False])
@pytest.mark.parametrize(
    ("redraw", "stored", "no_mlflow", "full"),
    [(True, True, False, False), (False, True, True, True), (False, False, False, False)],
)
def test_a_sweep_is_concluded_in_figures_mlflow_and_ranking(
    redraw: bool,
    stored: bool,
    no_mlflow: bool,
    full: bool,
    unfinished: bool,
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    calls: list[Any] = []

    def noted(name: str, result: Any = None) -> Any:
        def note(*what: Any, **how: Any) -> Any:
            calls.append((name, *what[1:], how))
            return result

        return note

    if stored:
        lab.sweep("s").figures.mkdir(parents=True)
        lab.sweep("s").drawn_path.touch()
    catalogue, ranking = "tread_lab.analysis.figures.catalogue", "tread_lab.terminal.ranking"
    monkeypatch.setattr(f"{catalogue}.write_figures", noted("figures", ["drawn"]))
    monkeypatch.setattr(f"{ranking}.show_ranking", noted("ranking"))
    monkeypatch.setattr(f"{ranking}.show_places", noted("places"))
    monkeypatch.setattr(sweep, "sync_if_possible", noted("sync"))
    monkeypatch.setattr(sweep, "show_unfinished", noted("unfinished", unfinished))
    ready = launch(lab)
    ready.options.no_mlflow = no_mlflow
    queue: Any = SimpleNamespace(full=full, left="2 runs left")
    assert sweep._conclude(ready, queue, redraw=redraw) == (1 if unfinished else 0)
    drawn = redraw or not stored
    assert calls == [
        *([("figures", "s", {})] if drawn else []),
        *([] if no_mlflow else [("sync", "s", {})]),
        ("ranking", "s", {"as_json": True}),
        ("places", lab.sweep("s"), ["drawn"] if drawn else [], {"mlflow": not no_mlflow}),
        ("unfinished", "s", {"whole": {"w"}}),
    ]
    said = "the budget of s is used up: 2 runs left\n" if full else ""
    assert capsys.readouterr() == ("", said)


@pytest.fixture
def driven(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What `_drive` asks for; `error` is what running the tasks raises, `stop` that of a queue."""
    made = SimpleNamespace(
        calls=[], error=None, queue=SimpleNamespace(stop=False, finished=False), lab=lab
    )

    def execute(ready: Any, queue: Any) -> None:
        assert is_held(lab.sweep("s").path / LOCK) and queue is made.queue
        made.calls.append("executed")
        if made.error is not None:
            raise made.error

    def conclude(ready: Any, queue: Any, *, redraw: bool) -> int:
        made.calls.append(("concluded", redraw))
        return 1

    monkeypatch.setattr(sweep, "preflight", lambda *what: made.calls.append(what) or [])
    monkeypatch.setattr(sweep, "check_provenance", lambda lab, *what: made.calls.append(what))
    monkeypatch.setattr(sweep, "store_plan", lambda *what: made.calls.append("stored"))
    monkeypatch.setattr(sweep, "_show", lambda what: made.calls.append("shown"))
    monkeypatch.setattr(sweep, "_queue", lambda *what: made.queue)
    monkeypatch.setattr(sweep, "_execute", execute)
    monkeypatch.setattr(sweep, "_conclude", conclude)
    return made


def test_open_runs_are_checked_stored_and_executed_in_this_order(driven: Any) -> None:
    ready = launch(driven.lab)
    assert sweep._drive(ready, redraw=False) == 1
    checked = (("task",), ready.devices)
    assert driven.calls == [
        checked, (("begun",), ("task",), "cpu"),
        "stored", "shown", "executed", ("concluded", True),
    ]  # fmt: skip
    ready.options.allow_mixed = True
    for redraw in (True, False):  # nothing is left to run
        driven.calls.clear()
        ready.open_tasks, driven.queue.finished = (), True
        assert sweep._drive(ready, redraw=redraw) == 1
        assert driven.calls == [((), ready.devices), "stored", "shown", ("concluded", redraw)]


def test_nothing_is_timed_for_a_sweep_that_another_driver_has(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timed: list[str] = []
    monkeypatch.setattr(sweep, "forecast", lambda *what, **how: timed.append("steps"))
    Path("s.yaml").write_text('{"experiment": "tiny", "axes": {"route": ["2->8"]}, "evaluate": []}')
    with Lab.at("lab").sweep("s").lock():
        assert main(["sweep", "s.yaml", "--executor", "inline", "--device", "cpu"]) == 2
    assert timed == [] and "process" in capsys.readouterr().err


@pytest.mark.parametrize("stop", [True, False])
def test_an_interruption_is_no_conclusion_but_the_end_of_the_hours_is(
    stop: bool, driven: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    driven.error, driven.queue.stop = Interrupted(), stop
    assert sweep._drive(launch(driven.lab), redraw=False) == (1 if stop else 130)
    assert (("concluded", True) in driven.calls) == stop
    said = "interrupted, checkpoints are saved; run the same command again to continue s\n"
    assert capsys.readouterr().err == ("" if stop else said)


@pytest.mark.parametrize("error", [UserError("no data"), Unavailable("disk full")])
def test_a_mistake_of_some_runs_is_raised_after_the_conclusion(
    error: UserError, driven: Any
) -> None:
    driven.error = error
    with pytest.raises(type(error), match=str(error)):
        sweep._drive(launch(driven.lab), redraw=False)
    assert (("concluded", True) in driven.calls) == (not isinstance(error, Unavailable))


def test_early_stopping_needs_trials_side_by_side(driven: Any) -> None:
    ready = launch(driven.lab)
    ready.plan.stop_early = "asha"
    assert sweep._drive(ready, redraw=False) == 1
    ready.kind.side_by_side = False
    driven.calls.clear()
    with pytest.raises(UserError, match=r"^stop_early: needs trials beside each other"):
        sweep._drive(ready, redraw=False)
    assert driven.calls == []


def test_the_executor_is_made_of_the_options_and_watched(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    executor = SimpleNamespace(run=lambda *what: calls.append(("run", *what)))

    def make(*what: Any) -> Any:
        calls.append(what)
        return executor

    @contextmanager
    def synced(lab: Lab, name: str, *, off: bool) -> Any:
        calls.append(("mlflow", name, off))
        yield
        calls.append("synced")

    monkeypatch.setattr(sweep.EarlyStopping, "of", lambda plan, lab: f"early {plan.name}")
    monkeypatch.setattr(sweep, "live_sync", synced)
    monkeypatch.setattr(sweep, "sweep_progress", lambda *what: nullcontext("watch"))
    monkeypatch.setattr(sweep, "DiskWatch", lambda *what: what[1:])
    queue: Any = SimpleNamespace(close=lambda: calls.append("closed"))
    sweep._execute(launch(lab, kind=SimpleNamespace(make=make)), queue)
    assert calls == [
        ("resources", 9.0, "early s"), ("mlflow", "s", False),
        ("run", lab, queue, (("task",), "watch")), "closed", "synced",
    ]  # fmt: skip


@pytest.mark.parametrize("asked", [True, False])
def test_what_will_run_is_shown_on_stdout_where_the_plan_is_asked_for(
    asked: bool, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []
    for name in (
        "disk_lines",
        "evaluation_lines",
        "exact_sampling",
        "price_lines",
        "budget_lines",
        "memory_lines",
    ):
        monkeypatch.setattr(sweep, name, lambda *what, name=name: (name, *what))
    monkeypatch.setattr(sweep, "show_plan", lambda *what: shown.append(what))
    monkeypatch.setattr(sweep, "show_lines", lambda out, lines: shown.append((out, *lines)))
    monkeypatch.setattr(sweep, "disk_need", lambda *what: what)
    monkeypatch.setattr(sweep, "Budget", lambda lab, plan, seconds: seconds)
    times = SimpleNamespace(total=lambda tasks: len(tasks), rates="rates", seconds="seconds")
    out, tasks = sweep.answers if asked else sweep.notices, ("task",)

    def names(device: str, rates: str | None, budget: Any) -> list[str]:
        ready = launch(lab, forecast=times, devices=SimpleNamespace(type=device, slots=3))
        ready.options = Sweep(file="s.yaml", plan=asked, device_rates=rates, price_per_hour=2.0)
        ready.plan.budget = budget
        shown.clear()
        sweep._show(ready)
        plan = ready.plan
        assert shown[:3] == [
            (out, plan, lab, 1, 3),
            (out, "disk_lines", (tasks, 3), lab),
            (out, "evaluation_lines", plan, times),
        ]
        arguments = {
            "exact_sampling": (plan, "rates"),
            "price_lines": (plan, times, tasks, 2.0),
            "memory_lines": (tasks, ready.devices),
            "budget_lines": (plan, "seconds", tasks, 3),
        }
        for where, name, *what in shown[3:]:
            assert where is out and tuple(what) == arguments[name]
        return [name for _, name, *_ in shown[3:]]

    price = ["price_lines", "memory_lines"] if asked else []
    assert names("cpu", None, None) == names("cpu", "cpu", None) == price
    assert names("cuda", None, None) == names("cuda", "H200", None) == ["exact_sampling", *price]
    assert names("cpu", None, BudgetSpec()) == [*price, "budget_lines"]


def test_failed_runs_are_named_with_their_kind_and_reopened_where_it_is_no_plan(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = ended(state=RunState.FAILED)
    plan = load_sweep("s.yaml", "evaluate=[]", path="lab").plan
    store_plan(lab.sweep("s"), plan)
    sweep._retry_failed(lab, plan, ["oom"], dry_run=False)
    assert capsys.readouterr().err == "no run has failed\n"
    sweep._retry_failed(lab, plan, ["oom", "exception"], dry_run=False)
    first, second = (trial.run for trial in plan.trials)
    said = f"running 2 failed runs again: {first} (exception), {second} (exception)"
    assert " ".join(capsys.readouterr().err.split()) == said
    assert RunState.FAILED not in {lab.run(run).state() for run in (first, second)}


def test_an_extension_is_said_and_grows_only_where_something_is_added(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = ended(state=RunState.COMPLETED)
    plan = load_sweep("s.yaml", "evaluate=[]", path="lab").plan
    assert sweep._say_extension(lab, plan) is False and capsys.readouterr().err == ""
    folder = lab.sweep("s")
    store_plan(folder, sweep.plan_to_run(folder, plan, extend=False))
    for added in (False, True):
        wanted = load_sweep("s.yaml", "evaluate=[]", *([BOTH] if added else []), path="lab").plan
        grown = sweep.plan_to_run(folder, wanted, extend=True)
        assert sweep._say_extension(lab, grown) is added
        assert capsys.readouterr().err.startswith("s: ")


@pytest.mark.parametrize("searched", [True, False])
def test_tasks_come_from_a_list_or_a_search_within_the_budget(
    searched: bool, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tread_lab.sweep.search import search_queue

    lab = ended(state=RunState.COMPLETED)
    plan = load_sweep("s.yaml", path="lab").plan
    given: list[Any] = []
    monkeypatch.setattr(search_queue, "SearchQueue", lambda *what, fits: given.append(fits))
    if searched:
        plan = sweep.replace(plan, search=SimpleNamespace(trials={}), budget=BudgetSpec(hours=2.0))  # type: ignore[arg-type]
    times = SimpleNamespace(seconds=lambda task: 3600.0, longest_first=list)
    queue = sweep._queue(lab, plan, plan.open_tasks(lab), times)  # type: ignore[arg-type]
    assert queue.budget.spec == (BudgetSpec(hours=2.0) if searched else BudgetSpec())
    assert queue.watch is not None and type(queue.queue).__name__ == (
        "NoneType" if searched else "ListQueue"
    )
    if searched:
        (fits,) = given
        queue.watch.earlier = 3590.0
        assert fits(plan.tasks)
        queue.watch.earlier = 3610.0
        assert not fits(plan.tasks)
    else:
        assert [queue.next(), queue.next()] == list(plan.open_tasks(lab))


@pytest.mark.parametrize(
    ("setting", "longest_first"),
    [({}, True), ({"budget": BudgetSpec(trials=9)}, False), ({"stop_early": "asha"}, False)],
)
def test_the_longest_run_is_first_where_the_order_decides_nothing_else(
    setting: dict[str, Any], longest_first: bool, in_folder: Path
) -> None:
    axis = {"train.steps": [10, 30, 20]}
    Path("s.yaml").write_text(json.dumps({"experiment": "tiny", "axes": axis, "baseline": None}))
    planned = load_sweep("s.yaml", "evaluate=[]", path="lab")
    plan = sweep.replace(planned.plan, **setting)
    open_tasks = plan.open_tasks(planned.lab)
    queue = sweep._queue(planned.lab, plan, open_tasks, sweep.Forecast(planned.lab))
    tasks = [queue.next() for _ in range(3)]
    steps = [task.spec.train.steps for task in tasks if task is not None]
    assert steps == ([30, 20, 10] if longest_first else [10, 30, 20])


@pytest.mark.parametrize("setting", [{}, {"budget": BudgetSpec(trials=9)}])
def test_baselines_come_before_longer_runs(setting: dict[str, Any], in_folder: Path) -> None:
    """Until they have ended no run that has ended is compared with anything."""
    axes = {"route": ["2->8"], "train.steps": [10, 30]}
    Path("s.yaml").write_text(json.dumps({"experiment": "tiny", "axes": axes, "seeds": [0, 1]}))
    planned = load_sweep("s.yaml", "evaluate=[]", path="lab")
    plan, times = sweep.replace(planned.plan, **setting), sweep.Forecast(planned.lab)
    queue = sweep._queue(planned.lab, plan, plan.open_tasks(planned.lab), times)
    tasks = [task for _ in range(8) if (task := queue.next()) is not None]
    assert [bool(task.spec.routes) for task in tasks] == [False] * 4 + [True] * 4


def test_a_search_runs_though_the_runs_that_its_forecast_stands_on_have_ended(
    in_folder: Path, no_figures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = {
        **{"experiment": "tiny", "baseline": None, "evaluate": []},
        "fixed": {"model": {"depth": 4, "width": 16, "heads": 2}, "train": {"steps": 2}},
        "axes": {"route": {"start": "0..3", "end": "3..3"}},
    }
    search = {"search": {"sampler": "random", "trials": 2, "objectives": ["cost/train_flops"]}}
    how = ["--executor", "inline", "--device", "cpu", "--no-mlflow"]
    for name, more in {"grid": {}, "searched": search}.items():
        Path(f"{name}.yaml").write_text(json.dumps({**tree, **more}))
        assert main(["sweep", f"{name}.yaml", *how]) == 0, capsys.readouterr().err
    assert "no run is open" in capsys.readouterr().err
    suggested = suggestions.read(Lab.at("lab").sweep("searched").suggestions_path)
    assert len(list(suggested)) == 2


@pytest.mark.parametrize(("executor", "ray"), [("ray", True), ("inline", False)])
def test_options_are_checked_before_a_lab_is_written(
    executor: str, ray: bool, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    Path("s.yaml").write_text(json.dumps({"experiment": "tiny", "axes": {"route": ["2->8"]}}))

    def visible(device: str | None, *, ray: bool) -> str | None:
        calls.append((device, ray))
        return device

    def loaded(file: str, overrides: Any) -> Any:
        calls.append((file, *overrides))
        raise UserError("enough")

    monkeypatch.setattr(sweep, "visible_device", visible)
    monkeypatch.setattr(sweep.Lab, "check_writable", lambda lab: calls.append("writable"))
    monkeypatch.setattr(sweep, "load_sweep", loaded)
    command = ["sweep", "s.yaml", "seeds=[1]", "--device", "cpu", "--executor", executor]
    for plan in ([], ["--plan"]):
        calls.clear()
        assert main([*command, *plan]) == 2
        written = [] if plan else ["writable"]
        assert calls == [("cpu", ray), *written, ("s.yaml", "seeds=[1]")]
    calls.clear()
    assert main([*command, "--gpus", "2"]) == 2 and calls == []
