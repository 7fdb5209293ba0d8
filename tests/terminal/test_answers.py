"""Answers go to stdout, notices to stderr; tables fit; a lost baseline is said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from tests.engine.runs import small_run
from tests.synthetic import Synthetic, small, write_sweep
from tread_lab.cli import main
from tread_lab.records.lab import Lab
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.trial.trial import Report
from tread_lab.terminal import live_progress
from tread_lab.terminal.console import fitted
from tread_lab.terminal.ranking import show_ranking

HEADS = ("run", "trial", "state", "why")
ROWS = [["0123456789abcdef", "2->8 s=0.5 precision=bf16 seed 0", "diverged", "loss nan"]]


def shown(width: int) -> str:
    console = Console(width=width, soft_wrap=True)
    with console.capture() as capture:
        console.print(fitted(HEADS, ROWS, drop=["run", "why"], width=width))
    return capture.get()


def lost(root: Path) -> Path:
    states = {None: "diverged", (0, 4): "completed"}
    write_sweep(root, Synthetic(routes=[(0, 4)], states=states, images=32))
    return root


def test_status_answers_on_stdout_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost(tmp_path)
    for name, said in (([], "placement"), (["placement"], "0->4 s=0.5 seed 0")):
        assert main(["status", *name, "--root", str(tmp_path)]) == 0
        out, err = capsys.readouterr()
        assert said in out and err == ""


def test_a_plan_that_is_asked_for_is_on_stdout(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("s.yaml").write_text(json.dumps({"experiment": "tiny", "axes": {"route": ["2->8"]}}))
    assert main(["sweep", "s.yaml", "--plan", "--device-rates", "H200"]) == 0
    assert "2->8 s=0.5 seed 0" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["status", "gc", "sync"])
@pytest.mark.parametrize(("name", "said"), [("file", "is a file"), ("none", "does not exist")])
def test_a_root_that_is_no_lab_is_one_line_and_exit_code_2(
    in_folder: Path, capsys: pytest.CaptureFixture[str], command: str, name: str, said: str
) -> None:
    Path("file").write_text("")
    assert main([command, "--root", name]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1 and said in err


def test_a_diverged_baseline_is_said_in_status_and_ranking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "baseline dense seed 0 diverged: its trials have nothing to compare with"
    main(["status", "placement", "--root", str(lost(tmp_path))])
    assert said in capsys.readouterr().out
    show_ranking(Lab(tmp_path), "placement", as_json=False)
    out = capsys.readouterr().out
    assert said in out and "baseline, diverged" in out


def test_a_ranking_says_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = write_sweep(tmp_path, Synthetic(routes=[(0, 4), (2, 8)], seeds=(0, 1), images=32))
    show_ranking(lab, "placement", as_json=False)
    out = capsys.readouterr().out
    assert "ranked by gap/heldout, lower is better" in out
    assert out.count("dense") == 1 and out.count("0->4") == 1


@pytest.mark.parametrize("width", [24, 40, 60, 120])
def test_no_width_cuts_the_trial_or_its_state(width: int) -> None:
    text = " ".join(shown(width).split())
    assert "2->8 s=0.5 precision=bf16 seed 0" in text and "diverged" in text


def test_columns_that_are_dropped_are_named() -> None:
    assert "not shown: run, why" in shown(50)
    assert "not shown" not in shown(120)


@pytest.mark.parametrize(
    ("width", "hidden"), [(59, "heldout/loss, fd@1k, gap/train, why"), (90, "")]
)
def test_a_narrow_ranking_keeps_cell_key_and_state(
    width: int, hidden: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = write_sweep(tmp_path, small(name="s", states={(5, 8): "failed"}))
    console = Console(width=width, soft_wrap=True)
    monkeypatch.setattr("tread_lab.terminal.ranking.answers", console)
    with console.capture() as capture:
        show_ranking(lab, "s", as_json=False)
    rows = [" ".join(line.split()) for line in capture.get().splitlines()]
    assert any(row.startswith("5->8 s=0.5 ") and " failed" in row for row in rows)
    assert any("-0.00150 ± 0.00058" in row for row in rows)
    assert ("failed on purpose" in capture.get()) == (not hidden)
    assert not hidden or f"not shown: seeds, {hidden}" in rows


def test_narrow_live_progress_cuts_neither_trial_nor_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(width=60, force_terminal=True, color_system=None)
    monkeypatch.setattr(live_progress, "notices", console)
    label = "2->8 s=0.5 precision=bf16 bypass=sprint seed 0"
    monkeypatch.setattr(live_progress, "run_label", lambda spec: label)
    task = Task(small_run())
    with console.capture() as capture, live_progress.run_progress([task], Lab(tmp_path)) as watch:
        watch(Report(task.run, "train", 3, 6, 0.5))
    words = set(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", capture.get()).split())
    assert {*label.split(), "step", "3/6,", "0.5000"} <= words
    assert "…" not in capture.get()
