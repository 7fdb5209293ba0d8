"""The ranking on a terminal: which columns, in which order, over what its intervals are."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from tests.frames.test_ranking import table
from tests.synthetic import small, write_sweep
from tread_lab.frames import trials_frame
from tread_lab.records import provenance
from tread_lab.records.lab import Lab
from tread_lab.terminal import ranking
from tread_lab.terminal.ranking import show_places, show_ranking


def shown(
    frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, width: int = 160
) -> list[str]:
    """The lines of the ranking of a frame, one space between their words."""
    console = Console(width=width, file=io.StringIO(), soft_wrap=True)
    monkeypatch.setattr(ranking, "trials_frame", lambda lab, name: frame)
    monkeypatch.setattr(ranking, "answers", console)
    monkeypatch.setattr(ranking, "answer", console.print)
    show_ranking(Lab(tmp_path), "s", as_json=False)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [" ".join(line.split()) for line in text.splitlines()]


def samples(runs: int, metrics: int) -> pd.DataFrame:
    """A baseline and trials with so many metrics of samples, all 1, 2, ... by run."""
    names = ["dense", *(f"c{k}" for k in range(1, runs))]
    return table(
        *names, **{f"fd@{k + 1}k": [float(r) for r in range(runs)] for k in range(metrics)}
    )


@pytest.mark.parametrize(
    ("runs", "metrics", "by_setting"), [(2, 7, True), (6, 7, True), (7, 7, False), (2, 6, False)]
)
def test_many_metrics_of_few_runs_are_a_row_each(
    runs: int, metrics: int, by_setting: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = shown(samples(runs, metrics), monkeypatch, tmp_path)
    heads = " ".join(f"{name} seed 3" for name in ("dense", *(f"c{k}" for k in range(1, runs))))
    assert (lines[0] == heads) == by_setting
    if by_setting:
        values = " ".join(map(str, range(runs)))
        assert lines[1:] == [f"fd@{k}k {values}" for k in range(1, metrics + 1)]
    else:
        assert lines[0].split()[:2] == ["cell", "seeds"]


def test_a_metric_of_samples_has_the_flops_of_an_image_beside_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    numbers = {f"fd@1k w={w}": [1.0, 2.0] for w in range(1, 7)} | {"heldout/loss": [0.5, 0.25]}
    costs = {"cost/sample_flops w=2": [1e9, 2e9], "cost/sample_flops w=3": [3e9, None]}
    lines = shown(table("dense", "a", **numbers, **costs), monkeypatch, tmp_path)
    assert lines[1:4] == [
        "fd@1k w=1 1 2", "fd@1k w=2 1 1 GFLOP 2 2 GFLOP", "fd@1k w=3 1 3 GFLOP 2"
    ]  # fmt: skip
    assert lines[-1] == "heldout/loss 0.5 0.25"


def gaps(**columns: list[Any]) -> pd.DataFrame:
    """A baseline and three trials, of which the last failed."""
    frame = table("dense", "a", "b", "c", state=["completed"] * 3 + ["failed"], **{
        "reason": ["", "", "", 90 * "x"], "heldout/loss": [2.0, 1.5, 2.25, None],
        "gap/heldout": [None, -0.5, 0.25, None], "gap/heldout:low": [None, -0.75, 0.0, None],
        "gap/heldout:high": [None, -0.25, 0.5, None], "gap/heldout:n": [None, 8, 8, None],
        "gap/heldout:kept": [None, 0.25, 0.25, None], "fd@1k": [4.0, 3.0, 5.0, None],
    })  # fmt: skip
    return frame.assign(**columns)


def test_the_best_cell_is_first_with_its_interval_and_a_reason_is_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert shown(gaps(), monkeypatch, tmp_path) == [
        "cell seeds gap/heldout heldout/loss fd@1k state why",
        "a 1 -0.50 ± 0.25 1.5 3 completed",
        "dense 1 0 2 4 baseline",
        "b 1 +0.25 ± 0.25 2.25 5 completed",
        f"c 1 - - - failed {80 * 'x'}",
        "ranked by gap/heldout, lower is better; a row is a cell, its seeds averaged",
        "gap: difference to the baseline, paired; ± 95% over 8 held-out images of one pair of runs"
        " (seeds vary more); using equal images and noise removed 75.0% of the variance",
    ]
    plain = shown(gaps(reason=[""] * 4), monkeypatch, tmp_path)
    assert plain[0] == "cell seeds gap/heldout heldout/loss fd@1k state"


def test_columns_go_from_the_seeds_then_from_the_last_metric(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for width, kept, hidden in (
        (55, "cell gap/heldout heldout/loss fd@1k state", "seeds"),
        (50, "cell gap/heldout heldout/loss state", "seeds, fd@1k"),
        (35, "cell gap/heldout state", "seeds, heldout/loss, fd@1k"),
    ):
        lines = shown(gaps(reason=[""] * 4), monkeypatch, tmp_path, width=width)
        assert lines[0] == kept and f"not shown: {hidden}" in lines


def test_what_pairing_removed_is_of_trials_that_are_not_their_baseline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = gaps(run=["dense", "dense", "b", "c"], **{"gap/heldout:kept": [None, 0.0, 0.5, None]})
    assert shown(own, monkeypatch, tmp_path)[-1].endswith("removed 50.0% of the variance")
    unpaired = gaps(**{"gap/heldout:kept": [None] * 4}).astype({"gap/heldout:kept": float})
    assert shown(unpaired, monkeypatch, tmp_path)[-1].endswith("(seeds vary more)")


def test_intervals_of_several_seeds_are_said_to_be_over_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "gap: difference to the baseline, paired; ± 95% over seeds"
    show_ranking(write_sweep(tmp_path / "a", small(seeds=(0, 1))), "placement", as_json=False)
    assert f"{said}; using equal images" in capsys.readouterr().out
    mixed = small(seeds=(0, 1), states={((2, 8), 1): "failed"})
    show_ranking(write_sweep(tmp_path / "b", mixed), "placement", as_json=False)
    out = capsys.readouterr().out
    assert f"{said} or over 32 held-out images of one pair of runs" in out
    marked = [line.split()[0] for line in out.splitlines() if "(images)" in line]
    assert marked == ["2->8"]


@pytest.mark.parametrize(("cells", "last"), [(40, []), (41, ["... and 1 more"])])
def test_the_best_40_cells_are_shown(
    cells: int, last: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ["dense", *(f"c{k}" for k in range(1, cells))]
    frame = table(*names, **{"fd@1k": [float(k) for k in range(cells)]})
    lines = shown(frame, monkeypatch, tmp_path)
    assert [line.split()[0] for line in lines[1:41]] == names[:40]
    assert lines[41:-1] == last


def test_the_ranking_for_scripts_is_the_rows_of_the_trials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = write_sweep(tmp_path, small())
    show_ranking(lab, "placement", as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in rows] == list(trials_frame(lab, "placement")["run"])


def test_a_lost_baseline_and_mixed_code_have_a_line_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(provenance, "provenance_differences", lambda made: ["code a and code b"])
    *_, last = shown(samples(2, 7), monkeypatch, tmp_path)
    assert last == "not one comparison: code a and code b"
    lines = shown(gaps(state=["failed", *["completed"] * 3]), monkeypatch, tmp_path)
    assert lines[-2:] == [
        "baseline dense seed 3 failed: its trials have nothing to compare with",
        "not one comparison: code a and code b",
    ]


def test_the_places_of_figures_records_and_mlflow_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path)
    folder, records = lab.sweep("s"), f"records: {tmp_path / 'runs'}\n"
    show_places(lab, folder, [], mlflow=False)
    assert capsys.readouterr().err == records
    show_places(lab, folder, [Path("a.png")], mlflow=False)
    assert capsys.readouterr().err == f"figures: {folder.figures}\n{records}"
    folder.figures.mkdir(parents=True)
    show_places(lab, folder, [], mlflow=True)
    assert capsys.readouterr().err == (
        f"figures: {folder.figures}\n{records}"
        f"MLflow:  {lab.mlflow_uri} (`tread-lab ui --root {tmp_path}` opens it)\n"
    )
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:secret@host/mlflow")
    show_places(lab, folder, [], mlflow=True)
    printed = capsys.readouterr().err
    assert "me:***@host/mlflow" in printed and "secret" not in printed


def test_a_sweep_without_a_run_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ranking, "trials_frame", lambda lab, name: pd.DataFrame())
    assert show_ranking(Lab(tmp_path), "s", as_json=True).empty
    assert capsys.readouterr() == ("", "no run of s has begun\n")


def test_a_number_of_another_sweep_that_few_runs_have_is_no_column(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    frame = table("dense", "a", **{"heldout/loss": [2.0, 1.5], "fd@1k": [None, 3.0]})
    assert shown(frame, monkeypatch, tmp_path)[0] == "cell seeds heldout/loss fd@1k state"
    frame.attrs["foreign"] = ["fd@1k"]
    assert shown(frame, monkeypatch, tmp_path)[0] == "cell seeds heldout/loss state"


def test_numbers_have_the_digits_of_their_interval_else_four(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    frame = gaps(**{"heldout/loss": [2.123456, 1.5, 2.25, None], "gap/heldout:kept": 0.123456})
    frame["gap/heldout"] = [None, -0.5123456, 0.25, None]
    frame["gap/heldout:low"] = [None, -0.7512345, 0.0, None]
    lines = shown(frame, monkeypatch, tmp_path)
    assert lines[1] == "a 1 -0.51 ± 0.25 1.5 3 completed"
    assert lines[2] == "dense 1 0 2.123 4 baseline"
    assert lines[-1].endswith("removed 87.7% of the variance")
