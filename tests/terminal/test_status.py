"""`status`: the sweeps of a lab, the runs of a sweep, one run; it reads and imports little."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from tests.synthetic import PAPER_PLACEMENTS, small, tiny_spec, write_sweep
from tests.terminal.conftest import Screen
from tread_lab.config.load import load_experiment
from tread_lab.cost import training
from tread_lab.records.lab import Lab
from tread_lab.records.run_status import RunStatus
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs import HeldoutSpec, RunSpec, decode
from tread_lab.specs.evaluation import EvaluationDefaults
from tread_lab.specs.sweep import SweepSpec
from tread_lab.sweep.plan.plan import Plan, make_plan
from tread_lab.sweep.plan.storage import store_plan
from tread_lab.terminal import status
from tread_lab.terminal.status import (
    _row,
    show_lab,
    show_run,
    show_sweep,
    show_unfinished,
    watch_sweep,
)


def plan(**sweep: Any) -> Plan:
    return make_plan(
        "s", decode(SweepSpec, {"experiment": "tiny", **sweep}), load_experiment("tiny")
    )


def placements(**more: Any) -> Plan:
    return plan(axes={"route": {"start": "0..3", "end": "4..9"}, **more}, seeds=[0, 1])


def test_costs_that_are_remembered_are_the_costs() -> None:
    """Beside those of runs that differ in one field alone."""
    base = {"model": {"depth": 12, "width": 32, "heads": 2}, "routes": ["2->8"]}
    changes: list[dict[str, Any]] = [
        {}, {"train": {"steps": 7}}, {"train": {"batch": 8}}, {"precision": "bf16"},
        {"model": {"depth": 10, "width": 32, "heads": 2}}, {"routes": ["2->7"]},
        {"routes_until": 0.5}, {"bypass": "sprint"}, {"loss": "ensemble"}, {"seed": 3},
        {"execution": {"micro_batch": 4}}, {"data": {"classes": 5}}, {"train": {"lr": 1e-5}},
    ]  # fmt: skip
    specs = [decode(RunSpec, {**base, **change}) for change in changes]
    remembered = [training.cost(spec) for spec in specs]
    for spec, price in zip(specs, remembered):
        training._COSTS.clear()
        assert training.cost(spec) == price


def test_status_needs_neither_torch_nor_pandas(tmp_path: Path) -> None:
    store_plan(Lab(tmp_path).sweep("s"), placements())
    heavy = "{'torch', 'pandas', 'mlflow', 'ray'} & set(sys.modules)"
    code = (
        "import sys; from tread_lab.cli import main;"
        f"code = main(['status', 's', '--root', {str(tmp_path)!r}]); assert not {heavy}, {heavy};"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "50 pending" in done.stdout and "... and 10 more" in done.stdout


def test_every_sweep_of_a_lab_has_its_runs_and_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, screen: Screen
) -> None:
    monkeypatch.setattr(status, "time", SimpleNamespace(time=lambda: 0.0))
    assert show_lab(Lab(tmp_path), as_json=False) == 0
    screen("an empty lab", show_lab, Lab(tmp_path), as_json=False)
    states = {None: "diverged", (0, 4): "completed"}
    write_sweep(tmp_path, small(name="a", steps=200, routes=[(0, 4)], states={(0, 4): "failed"}))
    write_sweep(tmp_path, small(name="c", steps=300, routes=[(0, 4)], states=states))
    lab = write_sweep(tmp_path, small(name="b"))
    screen("three sweeps", show_lab, lab, as_json=False)
    screen("for scripts", show_lab, lab, as_json=True)
    for name in "ac":
        screen(f"sweep {name}", show_sweep, lab, name, as_json=False)
    screen.width = 33
    screen("a narrow terminal", show_lab, lab, as_json=False)
    for width in (112, 111, 101, 86, 68, 38):
        screen.width = width
        screen(f"sweep a in {width} columns", show_sweep, lab, "a", as_json=False)


def test_a_sweep_is_watched_until_its_driver_and_its_runs_have_ended(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, screen: Screen
) -> None:
    """Records are read every two seconds; a change is a line."""
    write_sweep(lab.root, small(name="s", routes=[(0, 4)], states={(0, 4): "pending"}))
    folder, pauses, driven = lab.run_of(tiny_spec((0, 4))), list[float](), iter([True, False])
    monkeypatch.setattr(SweepFolder, "driven", property(lambda folder: next(driven)))

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            folder.finish(RunState.FAILED, step=10)

    monkeypatch.setattr("tread_lab.terminal.status.time.sleep", sleep)
    screen("in a log", watch_sweep, lab, "s")
    assert pauses == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(("height", "rows"), [(20, 14), (11, 5), (8, 5), (40, 17)])
def test_a_watched_sweep_fills_the_terminal_but_six_lines(
    height: int, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 17 runs, five at least are shown."""
    lab, shown = write_sweep(tmp_path, small(name="s", routes=PAPER_PLACEMENTS)), list[Table]()
    console = Console(width=160, height=height, force_terminal=True, file=io.StringIO())
    monkeypatch.setattr("tread_lab.terminal.status.answers", console)
    monkeypatch.setattr("rich.live.Live.update", lambda live, table: shown.append(table))
    watch_sweep(lab, "s")
    assert [table.row_count for table in shown] == [rows]
    assert (shown[0].title, shown[0].title_justify) == ("s: 17 completed", "left")


def test_the_most_urgent_runs_are_shown_where_there_is_no_room_for_all(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, screen: Screen
) -> None:
    states = {(0, 4): "stopped", (2, 8): "failed", (5, 8): "pending"}
    write_sweep(lab.root, small(name="s", states=states))
    monkeypatch.setattr(status, "time", SimpleNamespace(time=lambda: 0.0))
    for rows in (status.ROWS, 3, 1):
        monkeypatch.setattr(status, "ROWS", rows)
        screen(f"room for {rows} runs", show_sweep, lab, "s", as_json=False)


def test_a_row_has_what_is_known_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "time", SimpleNamespace(time=lambda: 1000.0))
    failed = RunStatus("r", RunState.FAILED, "exception", 100 * "x", (), 5, 940.0)
    why = f"exception: {79 * 'x'}"
    assert _row(failed, "label", 20) == ["r", "label", "failed", "5/20", "", "60 s ago", why]
    ahead = RunStatus("r", RunState.RUNNING, "", "why", (), 0, 1010.0)  # of another clock
    assert _row(ahead, "label", 20)[5:] == ["0 s ago", "why"]


def test_what_failed_or_lacks_measurements_is_said_with_the_remedy(
    lab: Lab, screen: Screen
) -> None:
    evaluate = [{"heldout_loss": {"images": 8, "levels": 2}}]
    found = plan(axes={"route": ["2->8", "0->4", "1->5", "3->6"]}, evaluate=evaluate)
    store_plan(lab.sweep("s"), found)
    dense, first, second, third, *_ = (lab.run_of(task.spec) for task in found.tasks)
    screen("nothing has begun", show_unfinished, lab, "s")
    dense.create(found.tasks[0].spec)
    dense.finish(RunState.COMPLETED, step=found.tasks[0].spec.train.steps)
    measured = found.tasks[0].evaluations[0]
    dense.evaluation(measured).write(measured, {"heldout/loss": 0.5})
    assert show_unfinished(lab, "s") is False
    first.finish(RunState.FAILED, kind="out of memory", reason="no room")
    screen("a run failed", show_unfinished, lab, "s")
    second.finish(RunState.FAILED, kind="exception")
    third.create(found.tasks[3].spec)
    third.finish(RunState.COMPLETED, step=found.tasks[3].spec.train.steps, reason="no weights")
    screen("two failed, one lacks measurements", show_unfinished, lab, "s")
    assert show_unfinished(lab, "s") is True
    screen(
        "of the one it is known that it lacks none", show_unfinished, lab, "s", whole={third.name}
    )


def test_a_run_is_shown_with_its_attempts_and_metrics(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, screen: Screen
) -> None:
    spec, compared = tiny_spec((2, 8)), list[Any]()
    folder = lab.run_of(spec)
    folder.create(spec)
    folder.create(spec, EvaluationDefaults().with_probes([HeldoutSpec(images=8, levels=2)]))
    screen("pending", show_run, folder)
    folder.close_attempt(folder.open_attempt(pid=7, host="n1"), "interrupted", reason="OOM\nmore")
    folder.finish(RunState.FAILED, step=5, kind="exception", reason="ValueError: x")
    screen("failed", show_run, folder)
    folder.close_attempt(folder.open_attempt(pid=8, host="n1"), "interrupted")
    folder.open_attempt(pid=9, host="n2")
    folder.finish(RunState.COMPLETED, step=400, metrics={"cost/x": 0.123456789})
    for step, loss in ((100, 0.5), (None, 0.25)):
        measured = HeldoutSpec(images=8, levels=2, step=step)
        folder.evaluation(measured).write(measured, {"heldout/loss": loss})

    def differences(made_with: Any) -> list[str]:
        compared.append({run: len(attempts) for run, attempts in made_with.items()})
        return ["code a and code b", "torch 1 and torch 2"]

    monkeypatch.setattr("tread_lab.terminal.status.provenance_differences", differences)
    monkeypatch.setattr("tread_lab.records.provenance.provenance_differences", differences)
    screen("three attempts of several codes", show_run, folder)
    assert compared == [{folder.name: 5}]  # three attempts, two evaluations


def test_scripts_read_a_run_as_a_tree(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    folder = lab.run_of(tiny_spec(None, steps=50))
    folder.create(tiny_spec(None, steps=50))
    show_run(folder, as_json=True)
    assert json.loads(capsys.readouterr().out)["result"] == {}
    folder.finish(RunState.COMPLETED, step=50, metrics={"cost/x": 0.123456789})
    for step, loss in ((10, 0.5), (None, 0.25)):
        measured = HeldoutSpec(images=8, step=step)
        folder.evaluation(measured).write(measured, {"heldout/loss": loss})
    show_run(folder, as_json=True)
    tree = json.loads(capsys.readouterr().out)
    name = "heldout/loss images=8"
    by_loss = sorted(tree["metrics"], key=lambda row: row[name])
    assert by_loss == [{name: 0.25}, {name: 0.5, "step": 10}]
    assert tree["result"]["metrics"] == {"cost/x": 0.123456789} and tree["run"] == folder.name
