"""The sweep command draws its figures again when runs were added, and reopens only what it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tread_lab.cli import main
from tread_lab.commands.sweep import check_price
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs import UserError
from tread_lab.sweep.plan.planned_sweep import load_sweep

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
    assert not Path("lab").exists()
    assert main(command) == 2
    assert "--device-rates: forecasts only; add --plan" in capsys.readouterr().err
    assert main([*command, "--plan", "--price-per-hour", "0"]) == 2
