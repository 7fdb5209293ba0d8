"""Claims about plans of many trials: runs are signed once, `status` decodes and imports little."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from tests.synthetic import PAPER_PLACEMENTS, small, tiny_spec, write_sweep
from tread_lab.config.load import load_experiment
from tread_lab.engine.cost import training
from tread_lab.records.lab import Lab, RunFolder, SweepFolder
from tread_lab.records.run_status import RunStatus, count_states
from tread_lab.records.status import RunState
from tread_lab.specs import HeldoutSpec, RunSpec, decode, encode, signature
from tread_lab.specs import trials as expanded
from tread_lab.specs.sweep import SweepSpec
from tread_lab.sweep.plan.plan import Plan, make_plan
from tread_lab.sweep.plan.storage import load_plan, store_plan
from tread_lab.terminal.status import (
    _row,
    _SweepStatus,
    show_lab,
    show_run,
    show_sweep,
    show_unfinished,
    watch_sweep,
)

THEN = {"routes": [], "train": {"steps": 10, "warmup": 0}}


def plan(**sweep: Any) -> Plan:
    return make_plan(
        "s", decode(SweepSpec, {"experiment": "tiny", **sweep}), load_experiment("tiny")
    )


def placements(**more: Any) -> Plan:
    return plan(axes={"route": {"start": "0..3", "end": "4..9"}, **more}, seeds=[0, 1])


def test_every_distinct_run_is_signed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    signed: list[RunSpec] = []

    def counted(spec: RunSpec) -> str:
        signed.append(spec)
        return signature(spec)

    monkeypatch.setattr(expanded, "signature", counted)
    found = placements(rate=[0, 0.5])
    runs = {trial.run for trial in found.trials}
    assert len(found.trials) == 2 + 2 * 48 and len(runs) == 2 + 2 * 24
    assert len(signed) <= len(runs) + 2 * 24  # a rate of 0 is the dense run in another tree
    assert found.tasks is found.tasks


def test_parts_made_once_change_no_run() -> None:
    for trial in placements(precision=["fp32", "bf16"]).trials:
        alone = decode(RunSpec, encode(trial.spec))
        assert alone == trial.spec and signature(alone) == trial.run == signature(encode(alone))


@pytest.mark.parametrize(
    "changes",
    [
        {"train": {"steps": 7}},
        {"train": {"batch": 8}},
        {"model": {"depth": 10, "width": 32, "heads": 2}},
        {"precision": "bf16"},
        {"routes": ["2->7"]},
        {"routes_until": 0.5},
        {"bypass": "sprint"},
        {"loss": "ensemble"},
        {"execution": {"micro_batch": 4}},
        {"data": {"classes": 5}},
        {"seed": 3, "train": {"steps": 1000, "batch": 16, "lr": 1e-5}},
    ],
)
def test_costs_that_are_remembered_are_the_costs(changes: dict[str, Any]) -> None:
    model = {"depth": 12, "width": 32, "heads": 2}
    base = {"model": model, "train": {"steps": 1000, "batch": 16}, "routes": ["2->8"]}
    training.cost(decode(RunSpec, base))
    spec = decode(RunSpec, {**base, **changes})
    remembered = training.cost(spec)
    training._COSTS.clear()
    assert training.cost(spec) == remembered


def test_the_runs_of_a_stored_plan_are_its_tasks_in_order(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    family = plan(
        fixed={"routes": ["2->8"]}, variants={"finetune": {"none": {}, "some": {"then": THEN}}}
    )
    store_plan(lab.sweep("s"), family)
    runs = lab.sweep("s").plan().runs()
    assert list(runs) == [task.run for task in family.tasks]
    assert all(decode(RunSpec, runs[t.run]) == t.spec for t in family.tasks)
    assert load_plan(lab.sweep("s")).trials == family.trials
    lab.run_of(family.tasks[0].spec).finish(RunState.COMPLETED, step=10)
    assert count_states(lab, runs) == {"pending": 3, "completed": 1}


def test_a_plan_has_a_line_for_every_trial(tmp_path: Path) -> None:
    found = placements()
    store_plan(Lab(tmp_path).sweep("s"), found)
    lines = Lab(tmp_path).sweep("s").plan_path.read_text().splitlines()
    assert sum('"role"' in line for line in lines) == len(found.trials)


def test_status_needs_neither_torch_nor_pandas_nor_hydra(tmp_path: Path) -> None:
    store_plan(Lab(tmp_path).sweep("s"), placements())
    heavy = "{'torch', 'pandas', 'hydra', 'mlflow', 'ray'} & set(sys.modules)"
    code = (
        "import sys; from tread_lab.cli import main;"
        f"code = main(['status', 's', '--root', {str(tmp_path)!r}]); assert not {heavy}, {heavy};"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "50 pending" in done.stdout and "... and 10 more" in done.stdout


def test_a_sweep_is_watched_while_its_driver_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = write_sweep(tmp_path, small(name="s"))
    driven = iter([True, True, False])
    monkeypatch.setattr(SweepFolder, "driven", property(lambda folder: next(driven)))
    pauses: list[float] = []
    monkeypatch.setattr("tread_lab.terminal.status.time.sleep", pauses.append)
    watch_sweep(lab, "s")
    assert len(pauses) == 2 and capsys.readouterr().out == "s: 4 completed\n"


@pytest.mark.parametrize(("height", "rows"), [(20, 14), (12, 6), (11, 5), (8, 5), (40, 17)])
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


@pytest.mark.parametrize(("runs", "last"), [(40, ""), (41, "... and 1 more")])
def test_runs_beyond_40_are_counted(
    runs: int, last: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    routes = [(i, j) for i in range(12) for j in range(i, 12)][: runs - 1]
    states: dict[Any, str] = dict.fromkeys([None, *routes], "pending")
    lab = write_sweep(tmp_path, small(name="s", routes=routes, states=states))
    show_sweep(lab, "s", as_json=False)
    headline, _, *rows = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert headline == f"s: {runs} pending"
    assert len(rows) == 40 + bool(last) and (rows[-1] == last or not last)
    statuses = _SweepStatus.read(lab, "s")
    assert statuses.table(runs).row_count == runs


def test_runs_that_are_no_comparison_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "tread_lab.records.provenance.provenance_differences", lambda made: ["code a and code b"]
    )
    show_sweep(write_sweep(tmp_path, small(name="s")), "s", as_json=False)
    assert capsys.readouterr().out.splitlines()[-1] == "not one comparison: code a and code b"


def test_the_most_urgent_runs_are_shown_where_there_is_no_room_for_all(tmp_path: Path) -> None:
    states = {(0, 4): "stopped", (2, 8): "failed", (5, 8): "pending"}
    status = _SweepStatus.read(write_sweep(tmp_path, small(name="s", states=states)), "s")
    trials = [[str(text) for text in status.table(most).columns[1].cells] for most in (4, 3, 1)]
    assert trials == [
        ["dense seed 0", "0->4 s=0.5 seed 0", "2->8 s=0.5 seed 0", "5->8 s=0.5 seed 0"],
        ["2->8 s=0.5 seed 0", "5->8 s=0.5 seed 0", "0->4 s=0.5 seed 0"],
        ["2->8 s=0.5 seed 0"],
    ]


def test_a_run_is_shown_with_its_attempts_and_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, lab = tiny_spec((2, 8)), Lab(tmp_path)
    folder = lab.run_of(spec)
    folder.create(spec)
    for reason in ("no memory\nmore", ""):
        folder.attempts.close(folder.attempts.open(pid=7, host="n1"), "interrupted", reason=reason)
    folder.finish(RunState.COMPLETED, step=400, metrics={"cost/x": 0.123456789})
    for step, loss in ((100, 0.5), (None, 0.25)):
        measured = HeldoutSpec(images=8, levels=2, step=step)
        folder.evaluation(measured).write(measured, {"heldout/loss": loss})
    show_run(folder)
    pairs = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    texts = {name: text.strip() for name, text in pairs.items()}
    assert texts["attempt 1"] == "interrupted, process 7 on n1: no memory"
    assert texts["attempt 2"] == "interrupted, process 7 on n1"
    assert (texts["run"], texts["state"]) == (f"{folder.name} (2->8 s=0.5 seed 0)", "completed")
    assert texts["heldout/loss at 100"] == "0.5" and texts["heldout/loss"] == "0.25"
    assert (texts["cost/x"], texts["folder"]) == ("0.123457", str(folder.path))
    show_run(folder, as_json=True)
    tree = json.loads(capsys.readouterr().out)
    by_loss = sorted(tree["metrics"], key=lambda row: row["heldout/loss"])
    assert by_loss == [{"heldout/loss": 0.25}, {"heldout/loss": 0.5, "step": 100}]
    assert tree["result"]["metrics"] == {"cost/x": 0.123456789} and tree["run"] == folder.name


def test_a_row_has_what_is_known_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tread_lab.terminal.status.time.time", lambda: 1000.0)
    status = RunStatus("r", RunState.FAILED, "exception", 100 * "x", (), 5, 940.0)
    why = f"exception: {79 * 'x'}"
    assert _row(status, "label", 20) == ["r", "label", "failed", "5/20", "", "60 s ago", why]
    fresh = RunStatus("r", RunState.PENDING, "", "", (), 0, None)
    assert _row(fresh, "label", 20) == ["r", "label", "pending", "0/20", "", "", ""]
    ahead = RunStatus("r", RunState.RUNNING, "", "why", (), 0, 1010.0)  # of another clock
    assert _row(ahead, "label", 20)[5:] == ["0 s ago", "why"]


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What stands on stdout, one space between words."""
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def two_sweeps(root: Path) -> Lab:
    """Sweep `a` with a failed trial, and `b` whose four runs are complete."""
    one = small(name="a", steps=200, routes=[(0, 4)], states={(0, 4): "failed"})
    write_sweep(root, one)
    return write_sweep(root, small(name="b"))


def test_every_sweep_of_a_lab_has_its_runs_and_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show_lab(Lab(tmp_path), as_json=False)
    assert capsys.readouterr() == (
        "",
        f"no sweep in {tmp_path}; try `tread-lab sweep route_placement.yaml --plan`\n",
    )
    lab = two_sweeps(tmp_path)
    show_lab(lab, as_json=False)
    assert lines(capsys) == ["sweep runs states", "a 2 1 completed, 1 failed", "b 4 4 completed"]
    show_lab(lab, as_json=True)
    assert capsys.readouterr().out == (
        '{\n "a": {\n  "completed": 1,\n  "failed": 1\n },\n "b": {\n  "completed": 4\n }\n}\n'
    )
    narrow = Console(width=33, file=io.StringIO(), soft_wrap=True)
    monkeypatch.setattr("tread_lab.terminal.status.answers", narrow)
    show_lab(lab, as_json=False)
    text = " ".join(narrow.file.getvalue().split())  # type: ignore[attr-defined]
    expected = "sweep states a 1 completed, 1 failed b 4 completed not shown: runs"
    assert text == expected


def test_the_runs_of_a_sweep_are_rows_for_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_sweep(two_sweeps(tmp_path), "a", as_json=True)
    text = capsys.readouterr().out
    assert text.startswith('[\n {\n  "label": "dense seed 0",\n  "run": "')
    rows = [(row["label"], row["state"], row["reason"]) for row in json.loads(text)]
    failed = ("0->4 s=0.5 seed 0", "failed", "failed on purpose")
    assert rows == [("dense seed 0", "completed", ""), failed]


def test_the_table_of_a_sweep_is_dropped_from_attempts_to_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = _SweepStatus.read(two_sweeps(tmp_path), "a")
    heads = ["run", "trial", "state", "step", "attempts", "last progress", "why"]
    for width, hidden in (
        (112, ()),
        (111, ("attempts",)),
        (101, ("attempts", "last progress")),
        (86, ("attempts", "last progress", "run")),
        (68, ("attempts", "last progress", "run", "why")),
        (38, ("attempts", "last progress", "run", "why", "step")),
    ):
        console = Console(width=width, file=io.StringIO())
        monkeypatch.setattr("tread_lab.terminal.status.answers", console)
        shown = [str(column.header) for column in sweep.table(5).columns]
        assert shown == [head for head in heads if head not in hidden], width


def test_a_change_is_a_line_and_records_are_read_every_2_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = write_sweep(tmp_path, small(name="s", routes=[(0, 4)], states={(0, 4): "pending"}))
    folder, pauses = lab.run_of(tiny_spec((0, 4))), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            folder.finish(RunState.FAILED, step=10)

    monkeypatch.setattr("tread_lab.terminal.status.time.sleep", sleep)
    watch_sweep(lab, "s")
    assert pauses == [2.0, 2.0]
    assert lines(capsys) == ["s: 1 completed, 1 pending", "s: 1 completed, 1 failed"]


def test_no_more_runs_are_read_than_four_times_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(folder: RunFolder, stopped: object) -> RunStatus:
        read.append(folder.name)
        return RunStatus(folder.name, RunState.COMPLETED, "", "", (), 400, None)

    monkeypatch.setattr("tread_lab.terminal.status.run_status", counted)
    sweep = _SweepStatus.read(write_sweep(tmp_path, small(name="s", routes=PAPER_PLACEMENTS)), "s")
    assert sweep.table(2).row_count == 2 and read == list(sweep.runs)[:8]


def test_what_failed_or_lacks_measurements_is_said_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab, evaluate = Lab(tmp_path), [{"heldout_loss": {"images": 8, "levels": 2}}]
    found = plan(axes={"route": ["2->8", "0->4", "1->5", "3->6"]}, evaluate=evaluate)
    store_plan(lab.sweep("s"), found)
    dense, first, second, third, _ = (lab.run_of(task.spec) for task in found.tasks)
    assert show_unfinished(lab, "s") is False and capsys.readouterr() == ("", "")
    dense.create(found.tasks[0].spec)
    dense.finish(RunState.COMPLETED, step=found.tasks[0].spec.train.steps)
    measured = found.tasks[0].evaluations[0]
    dense.evaluation(measured).write(measured, {"heldout/loss": 0.5})
    assert show_unfinished(lab, "s") is False and capsys.readouterr() == ("", "")
    first.finish(RunState.FAILED, kind="out of memory", reason="no room")
    assert show_unfinished(lab, "s") is True
    failed = "1 run failed (1 out of memory); --retry-failed runs them again\n"
    assert capsys.readouterr() == ("", failed)
    second.finish(RunState.FAILED, kind="exception")
    third.create(found.tasks[3].spec)
    third.finish(RunState.COMPLETED, step=found.tasks[3].spec.train.steps, reason="no weights")
    assert show_unfinished(lab, "s") is True
    assert capsys.readouterr().err == (
        "2 runs failed (1 out of memory, 1 exception); --retry-failed runs them again\n"
        "1 run lacks measurements (no weights); `tread-lab evaluate s` adds them\n"
    )


def test_a_run_that_failed_is_shown_line_by_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tiny_spec(None)
    folder = Lab(tmp_path).run_of(spec)
    folder.create(spec)
    name = folder.name
    show_run(folder)
    assert lines(capsys) == [
        f"run {name} (dense seed 0)", "state pending", "step 0/400", f"folder {folder.path}"
    ]  # fmt: skip
    show_run(folder, as_json=True)
    assert json.loads(capsys.readouterr().out)["result"] == {}
    folder.attempts.open(pid=7, host="n1")
    folder.finish(RunState.FAILED, step=5, kind="exception", reason="ValueError: x")
    show_run(folder)
    assert lines(capsys) == [
        f"run {name} (dense seed 0)", "state failed", "kind exception", "reason ValueError: x",
        "step 5/400", f"folder {folder.path}",
    ]  # fmt: skip


def test_attempts_of_several_codes_and_metrics_are_shown_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, asked = tiny_spec(None), list[Any]()
    folder = Lab(tmp_path).run_of(spec)
    folder.create(spec)
    folder.attempts.close(folder.attempts.open(pid=7, host="n1"), "interrupted")
    folder.attempts.open(pid=8, host="n2")
    folder.finish(RunState.COMPLETED, step=400, metrics={"cost/x": 0.5, "cost/y": 2.0})

    def differences(made_with: Any) -> list[str]:
        asked.append({run: len(attempts) for run, attempts in made_with.items()})
        return ["code a and code b", "torch 1 and torch 2"]

    monkeypatch.setattr("tread_lab.terminal.status.provenance_differences", differences)
    show_run(folder)
    assert lines(capsys) == [
        f"run {folder.name} (dense seed 0)", "state completed", "step 400/400",
        "attempt 1 interrupted, process 7 on n1", "attempt 2 under way, process 8 on n2",
        "mixed code a and code b", "mixed torch 1 and torch 2", "cost/x 0.5", "cost/y 2",
        f"folder {folder.path}",
    ]  # fmt: skip
    assert asked == [{folder.name: 2}]
