"""The sweep command: what it refuses, says, draws, reopens and leaves to another session."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pretender import Pretender, ended_run
from tread_lab.cli.main import main
from tread_lab.config import UserError
from tread_lab.config.errors import Unavailable
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.sweep.planned_sweep import load_sweep
from tread_lab.sweep.runner import InlineRunner, Interrupted

OPTIONS = ["--root", "lab", "--executor", "inline", "--device", "cpu", "--tracker=none"]
COMMAND = ["sweep", "s.yaml", "evaluate=[]", *OPTIONS]


@pytest.fixture(autouse=True)
def _written(in_folder: Path) -> None:
    """A sweep of one route and its baseline."""
    Path("s.yaml").write_text(json.dumps({"experiment": "tiny", "axes": {"route": ["2->8"]}}))


def ended(*overrides: str, state: RunState) -> Lab:
    """A lab in which every run of the sweep has ended."""
    planned = load_sweep("s.yaml", "evaluate=[]", *overrides, path="lab")
    for trial in planned.plan.trials:
        kind = "exception" if state is RunState.FAILED else ""
        ended_run(planned.lab, trial.spec, state, step=1, kind=kind)
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


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch, drawn: list[str]) -> Any:
    """No step is trained: results are made up, or `error` is raised; `done` are specs."""
    made = SimpleNamespace(done=[], error=None, beside=lambda lab: None)

    def run(executor: object, lab: Lab, queue: Any, watch: object) -> None:
        if made.error is not None:
            raise made.error
        pretender = Pretender(lab)
        pretender.run(queue)
        made.beside(lab)
        made.done += [task.spec for task in pretender.done]

    monkeypatch.setattr(InlineRunner, "run", run)
    return made


def test_figures_follow_every_new_result(drawn: list[str], pretended: Any) -> None:
    lab = ended(state=RunState.DIVERGED)
    assert main(COMMAND) == 0
    (run, *_) = load_sweep("s.yaml", "evaluate=[]", path="lab").plan.tasks
    lab.run(run.run).reopen()
    assert main(COMMAND) == 0
    assert drawn == ["s", "s"] and len(pretended.done) == 1
    lab.run(run.run).reopen()
    pretended.error = Interrupted()  # or killed, after the run has ended and before it is drawn
    assert main(COMMAND) == 130
    lab.run(run.run).finish(RunState.DIVERGED, step=1)
    assert main(COMMAND) == main(COMMAND) == 0 and drawn == ["s", "s", "s"]
    lab.run(run.run).reopen()
    pretended.error = None
    pretended.beside = lambda lab: lab.sweep("s").figures.mkdir()  # `tread-lab figures`
    assert main(COMMAND) == 0 and drawn == ["s"] * 4


def test_retry_reopens_failed_runs(pretended: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lab = ended(state=RunState.FAILED)
    first, second = (trial.run for trial in load_sweep("s.yaml", path="lab").plan.trials)
    named = "running 2 failed runs again"
    for words, said, state in (
        (["--plan", "--retry-failed"], named, RunState.FAILED),
        (["--retry-failed"], named, RunState.COMPLETED),
    ):
        assert main([*COMMAND, *words]) == (state is RunState.FAILED and "--plan" not in words)
        out, err = (" ".join(text.split()) for text in capsys.readouterr())
        assert said in err and ("; 2 runs open, 1 at once" in out) == ("--plan" in words)
        assert {lab.run(run).state() for run in (first, second)} == {state}


def test_plan_writes_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["sweep", "s.yaml", "--root", "lab", "--device", "cpu"]
    assert main([*command, "--plan"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith("disk: at most ") for line in lines)
    shown = [main([*command, "--plan", "--json"]) or capsys.readouterr().out for _ in range(2)]
    assert shown[0] == shown[1] and json.loads(shown[0])["counts"]["runs"] == 2
    assert not Path("lab").exists()


@pytest.mark.parametrize(
    ("error", "code", "concluded", "line"),
    [
        (Interrupted(), 130, False,
         "interrupted after saving checkpoints; rerun the command to continue s"),
        (UserError("no data"), 2, True, "tread-lab: no data"),
        (Unavailable("disk full"), 3, False, "tread-lab: disk full"),
    ],
)  # fmt: skip
def test_mistake_of_run_follows_conclusion(
    error: BaseException,
    code: int,
    concluded: bool,
    line: str,
    pretended: Any,
    drawn: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    pretended.error = error
    assert main(COMMAND) == code
    assert capsys.readouterr().err.splitlines()[-1] == line and drawn == ["s"] * concluded
