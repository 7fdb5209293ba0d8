"""`write_figures` draws what the records support, whole files only, and reading needs no torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import tread_lab.analysis.figures.catalogue
from tests.synthetic import PAPER_PLACEMENTS, Synthetic, small, write_sweep
from tread_lab.analysis.figures.catalogue import all_figures, sweep_records, write_figures
from tread_lab.analysis.figures.style import figure, power_of_ten, save, signed, times
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError

EVERYTHING = {
    "route_grid-gap-heldout",
    "route_spans-gap-heldout",
    "route_bars-gap-heldout",
    "route_grid-fd-fashion16-v1-1k",
    "route_spans-fd-fashion16-v1-1k",
    "route_bars-fd-fashion16-v1-1k",
    "gap_by_length",
    "gap_over_steps",
    "similarity",
    "similarity_all",
    "pareto-gap-heldout",
    "pareto-fd-fashion16-v1-1k",
    "savings-gap-heldout",
    "savings-fd-fashion16-v1-1k",
    "gap_and_quality-fd-fashion16-v1-1k",
    "samples",
}
TABLES = {
    f"{name}.{kind}"
    for name in ("ranking", "comparison-heldout-loss", "comparison-fd-fashion16-v1-1k")
    for kind in ("md", "tex")
}


def test_a_placement_sweep_has_every_figure_twice_and_its_ranking(paper_lab: Lab) -> None:
    paths = write_figures(paper_lab, "placement")
    folder = paper_lab.sweep("placement").figures
    expected = {f"{name}.{kind}" for name in EVERYTHING for kind in ("png", "pdf")}
    assert {path.name for path in paths} == expected | TABLES
    assert {path.name for path in folder.iterdir()} == {path.name for path in paths}
    for path in paths:
        start = path.read_bytes()[:5]
        assert start == {".png": b"\x89PNG\r", ".pdf": b"%PDF-"}.get(path.suffix, start)


def test_only_what_is_there_is_drawn(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(routes=((2, 8),)))
    names = {path.name for path in write_figures(lab, "placement")}
    assert names == TABLES


def test_a_sweep_that_has_not_begun_draws_nothing(tmp_path: Path) -> None:
    states = {None: "pending", **dict.fromkeys(PAPER_PLACEMENTS, "pending")}
    assert write_figures(write_sweep(tmp_path, Synthetic(states=states)), "placement") == []


def test_another_axis_has_a_set_of_figures_for_each_value(tmp_path: Path, undrawn: None) -> None:
    lab = write_sweep(tmp_path, small(rates=(0.5, 0.75)))
    names = {path.name for path in write_figures(lab, "placement")}
    grids = {"route_grid-gap-heldout-rate=0.5.png", "route_grid-gap-heldout-rate=0.75.pdf"}
    assert {*grids, "ranking.md", "cells-gap-heldout.png", "cells-gap-heldout.pdf"} <= names


def test_a_sweep_over_budgets_draws_quality_over_training_and_time_to_equal(
    budget_lab: Lab,
    undrawn: None,
) -> None:
    names = {path.stem for path in write_figures(budget_lab, "budget")}
    assert {"over_training-fd-fashion16-v1-1k", "time_to_equal-fd-fashion16-v1-1k"} <= names
    assert "pareto-heldout-loss" in names  # gaps to several baselines cannot share a figure


def test_an_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    lab.sweep("placement").figures.write_text("in the way")
    with pytest.raises(UserError, match="cannot write"):
        write_figures(lab, "placement")


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    contents = []
    for _ in range(2):
        fig, (ax,) = figure()
        ax.plot([0, 1], [1, 0])
        contents.append([path.read_bytes() for path in save(fig, tmp_path, "line")])
        assert fig.get_size_inches()[0] == 3.3
    assert contents[0] == contents[1]


def test_scaled_labels() -> None:
    values = pd.Series([0.0134, -0.0015, float("nan")]).to_numpy()
    assert power_of_ten(values) == -3
    assert signed(values * 1e3) == ["+13.4", "\N{MINUS SIGN}1.5", ""]
    assert times(-3) == r" ($\times 10^{-3}$)" and times(0) == ""
    assert power_of_ten(pd.Series([2.7, -0.3]).to_numpy()) == 0


def test_reading_results_imports_no_torch_and_asks_no_network() -> None:
    folder = Path(tread_lab.analysis.__path__[0])
    modules = [p.relative_to(folder).with_suffix("") for p in folder.rglob("*.py")]
    names = [".".join(m.parts) for m in modules if m.name != "__init__"]
    assert {"figures.catalogue", "report.report", "recommend.recommendation"} <= set(names)
    imports = "; ".join(f"import tread_lab.analysis.{name}" for name in names)
    heavy = "('torch', 'mlflow', 'ray', 'matplotlib.pyplot', 'nbclient')"
    check = (
        "import sys; asked = []\n"
        "sys.addaudithook(lambda event, _: event.startswith('socket.') and asked.append(event))\n"
        f"{imports}\n"
        f"print([m for m in {heavy} if m in sys.modules], asked, sep='|')"
    )
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    loaded, asked = out.stdout.strip().split("|")
    assert loaded == "[]" and asked == "[]"


def test_bars_of_both_questions_stand_in_one_figure_and_never_in_one_panel(paper_lab: Lab) -> None:
    records = sweep_records(paper_lab, paper_lab.sweep("placement"))
    gaps = [f"gap/heldout{end}" for end in ("", ":low", ":high")]
    shorter = 1e-3 * (records.frame["end"].astype(float) - 9)
    steps = records.frame.assign(**{gap: records.frame[gap] + shorter for gap in gaps})
    steps.attrs |= {**records.frame.attrs, "comparison": "at equal steps"}
    records.frame.attrs["comparison"] = "at equal training FLOPs"
    drawn = {d.name: d for _, d in all_figures(replace(records, equal_steps=steps))}
    bars = drawn["route_bars-gap-heldout"]
    caption, figure = bars.caption, bars.figure
    questions = [ax.get_title(loc="left").splitlines()[0] for ax in figure.axes]
    assert [question.partition(" at ")[2] for question in questions] == [
        "equal training FLOPs", "equal steps", ""
    ]  # fmt: skip
    first, second = caption.split(" At equal steps: ")
    assert first.startswith("At equal training FLOPs: Best is 2→8") and "p = " in first
    assert "0.00250" in second and "0.00250" not in first and "Rank correlation" in second
    assert drawn["route_grid-gap-heldout"].caption.endswith("Compared at equal training FLOPs.")
