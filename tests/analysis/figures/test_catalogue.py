"""`write_figures` draws what the records support, whole files only, and reading needs no torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tread_lab.analysis
from tests.synthetic import PAPER_PLACEMENTS, Synthetic, small, write_sweep
from tread_lab.analysis.figures import placements
from tread_lab.analysis.figures.catalogue import all_figures, sweep_records, write_figures
from tread_lab.config import UserError
from tread_lab.records.lab import Lab


@pytest.mark.parametrize("name", ["paper", "seeds", "budget", "stages"])
def test_figures_folder_holds_what_was_written(
    name: str, request: pytest.FixtureRequest, undrawn: None
) -> None:
    lab: Lab = request.getfixturevalue(f"{name}_lab")
    (sweep,) = lab.sweeps()
    written = write_figures(lab, sweep)
    assert written and {*lab.sweep(sweep).figures.iterdir()} == {*written}


def test_only_what_is_there_is_drawn(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(routes=((2, 8),)))
    names = {path.name for path in write_figures(lab, "placement")}
    tables = ("ranking", "ranking-heldout-loss", "ranking-fd-fashion16-v1-1k")
    assert names == {f"{name}.{kind}" for name in tables for kind in ("md", "tex")}


def test_a_sweep_that_has_not_begun_draws_nothing(tmp_path: Path) -> None:
    states = {None: "pending", **dict.fromkeys(PAPER_PLACEMENTS, "pending")}
    assert write_figures(write_sweep(tmp_path, Synthetic(states=states)), "placement") == []


@pytest.mark.parametrize(
    "shape",
    [{"budgets": (100, 200), "guided": True}, {"stages": (100, 200)}, {"rates": (0.25, 0.5)}],
)
def test_cells_that_all_lack_a_seed_are_in_no_figure(shape: dict[str, Any], tmp_path: Path) -> None:
    states = {(route, 1): "pending" for route in ((2, 8), (0, 4), None)}
    lab = write_sweep(
        tmp_path, small(routes=((2, 8), (0, 4)), seeds=(0, 1), states=states, **shape)
    )
    records = sweep_records(lab, lab.sweep("placement"))
    assert [drawn.name for drawn in all_figures(records)] == []


def test_an_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    lab.sweep("placement").figures.write_text("in the way")
    with pytest.raises(UserError, match="cannot write"):
        write_figures(lab, "placement")


def test_reading_results_imports_no_torch_and_asks_no_network() -> None:
    folder = Path(tread_lab.analysis.__path__[0])
    modules = [p.relative_to(folder).with_suffix("") for p in folder.rglob("*.py")]
    names = [".".join(m.parts) for m in modules if m.name != "__init__"]
    assert "figures.catalogue" in names
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


def test_both_questions_stand_in_one_figure_and_never_in_one_panel(paper_lab: Lab) -> None:
    records = sweep_records(paper_lab, paper_lab.sweep("placement"))
    gaps = [f"gap/heldout{end}" for end in ("", ":low", ":high")]
    shorter = 1e-3 * (records.frame["end"].astype(float) - 9)
    steps = records.frame.assign(**{gap: records.frame[gap] + shorter for gap in gaps})
    steps.attrs |= {**records.frame.attrs, "comparison": "at equal steps"}
    records.frame.attrs["comparison"] = "at equal training FLOPs"
    (drawn, *_) = placements.spans(replace(records, equal_steps=steps))
    caption, figure = drawn.caption, drawn.figure
    titles = [title for ax in figure.axes if (title := ax.get_title(loc="left"))]
    assert [title.splitlines()[0].partition(" at ")[2] for title in titles] == [
        "equal training FLOPs", "equal steps", ""
    ]  # fmt: skip
    bars = [ax.get_ylim() for ax in figure.axes if ax.get_ylabel().startswith("Δ held-out loss")]
    assert len(bars) == 2 and bars[0] == bars[1]  # one scale for one quantity
    first, second = caption.split(" At equal steps: ")
    assert first.startswith("At equal training FLOPs: Best is 2→8") and "p = " in first
    assert "0.00250" in second and "0.00250" not in first and "Rank correlation" in second
