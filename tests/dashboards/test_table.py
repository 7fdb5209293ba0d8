"""The table of a page has the report's strings; an expression and columns choose of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.synthetic import small, write_sweep
from tread_lab.analysis.report.report import contents
from tread_lab.dashboards.pages import Pages
from tread_lab.dashboards.table import RankingTable, ranking_table
from tread_lab.frames import trials_frame
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Three routes at two rates, one failed, with gaps of either size."""
    routes = ((0, 4), (2, 8), (0, 10))
    return write_sweep(tmp_path, small(routes=routes, rates=(0.5, 0.75), states={(0, 4): "failed"}))


def test_every_text_of_the_report_stands_in_the_same_column_and_row(
    lab: Lab, no_figures: None
) -> None:
    frame = trials_frame(lab, "placement")
    said, shown = contents(lab, "placement")["ranking"], RankingTable.of(frame).tree(frame, "")
    place = [shown["heads"].index(head) for head in said.heads]
    assert [[row[k] for k in place] for row in shown["rows"]] == said.rows
    assert [shown["numeric"][k] for k in place] == said.numeric


WHERE = {  # expression -> routes and rates that it keeps beside dense
    "": {("0->4", 0.5), ("0->4", 0.75), *{(r, s) for r in ("2->8", "0->10") for s in (0.5, 0.75)}},
    "length > 6 and rate == 0.5": {("2->8", 0.5), ("0->10", 0.5)},
    "state == 'failed'": {("0->4", 0.5), ("0->4", 0.75)},
    "rank <= 2 and gap < 0.02": {("2->8", 0.5), ("2->8", 0.75)},
    "train.lr > 1": set(),
}


@pytest.mark.parametrize("where", WHERE)
def test_an_expression_of_the_sweep_files_grammar_keeps_rows(lab: Lab, where: str) -> None:
    plan, frame = lab.sweep("placement").plan(), trials_frame(lab, "placement")
    kept = ranking_table(plan, frame, where=where).numbers
    routed = kept[kept["route"] != "dense"]
    assert set(zip(routed["route"], routed["rate"])) == WHERE[where]
    assert "dense" in set(kept["route"])


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("lenght > 2", "unknown name 'lenght', did you mean 'length'?"),
        ("gap <", "'gap <' is not an expression"),
        ("__import__('os')", "is not allowed here"),
        ("rate > 'x'", "cannot evaluate"),
    ],
)
def test_what_holds_of_nothing_says_why(lab: Lab, where: str, said: str) -> None:
    frame = trials_frame(lab, "placement")
    with pytest.raises(UserError) as error:
        ranking_table(lab.sweep("placement").plan(), frame, where=where)
    assert said in str(error.value)


def test_rows_are_sorted_by_numbers_and_those_without_one_come_last(lab: Lab) -> None:
    table = RankingTable.of(trials_frame(lab, "placement"))
    gaps = list(table.ordered("-gap").numbers["gap"].dropna())
    assert gaps == sorted(gaps, reverse=True) and len(gaps) == 5
    assert table.ordered("-gap").numbers["gap"].isna().tolist() == [False] * 5 + [True] * 2
    routes = list(table.ordered("route").numbers["route"])
    assert routes == ["0->4", "0->4", "0->10", "0->10", "2->8", "2->8", "dense"]
    assert table.ordered("nothing") is table
    fast = RankingTable.of(trials_frame(lab, "placement"), "throughput/images_per_s")
    speeds = list(fast.ordered(fast.metric).numbers["value"].dropna())  # not as they are ranked
    assert speeds == sorted(speeds) and speeds[0] < speeds[-1]


def test_latex_has_the_chosen_columns_and_csv_all_numbers(lab: Lab) -> None:
    guided = "fd@1k w=2 interval=[0.2,5]"
    table = RankingTable.of(trials_frame(lab, "placement").assign(**{guided: 3.0}))
    latex = table.latex(f"route,FLOPs / dense,{guided}")
    assert (
        rf"route & FLOPs / dense & {guided} \\" in latex and r"2$\to$8 & 0.71 & 3.000 \\" in latex
    )
    assert table.csv().startswith("rank,route,rate,value,gap,gap_low,gap_high,n,unit,flops,")


def test_a_sweep_without_a_number_says_so_instead_of_ranking(tmp_path: Path) -> None:
    states = {None: "pending", (0, 4): "pending", (2, 8): "pending", (5, 8): "pending"}
    lab = write_sweep(tmp_path, small(states=states))
    assert "nothing has been measured" in Pages(lab).table("placement")["problem"]
