"""One thing has one number: the same text in terminal, dashboard, report, MLflow and tables."""

from __future__ import annotations

import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tests.synthetic import FD, Synthetic, small, write_sweep
from tread_lab.analysis.figures.points import quality_metrics
from tread_lab.analysis.paper_tables import to_latex
from tread_lab.cli.console import answers
from tread_lab.cli.show_ranking import show_ranking
from tread_lab.dashboards.contents import contents
from tread_lab.dashboards.panel import numbers as panel_numbers
from tread_lab.dashboards.tables import COSTS
from tread_lab.records.durable import read_json, write_json
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import GAP_HELDOUT, HELDOUT_LOSS, delta_column, metric_label
from tread_lab.results import ranked_cells, ranking_key, trials_frame
from tread_lab.results.ranking import formatted, ranking, to_markdown
from tread_lab.tracking.mlflow_tracker import note
from tread_lab.tracking.shown_run import ShownSweep

Shown = Iterator[tuple[str, str, str]]  # cell, quantity, text
ENDINGS = ("failed", "diverged", "stopped", "interrupted", "pending")
ROUTES = ((0, 4), (2, 8))
ALONE = {(None, 0): "stopped", (None, 1): "diverged"}  # no baseline has a result


@st.composite
def sweeps(draw: st.DrawFn) -> tuple[Synthetic, dict[str, Any]]:
    """A made sweep, and what its plan says besides: whether it is matched, or a search."""
    seeds = tuple(range(draw(st.integers(1, 3))))
    baselines = draw(st.integers(1, 4))  # one for each length of training
    places = st.tuples(st.sampled_from([None, *ROUTES]), st.sampled_from(seeds))
    states = draw(st.dictionaries(places, st.sampled_from(ENDINGS), max_size=3))
    shifts = {seed: draw(st.floats(-0.01, 0.01)) for seed in seeds}
    factor = 10.0 ** draw(st.integers(-4, 3))
    sweep = small(
        routes=ROUTES,
        seeds=seeds,
        states=states,
        seed_shift=shifts,
        heldout=lambda route: factor * (0.002 + 0.0012 * abs(route[0] - 2)),
        guided=draw(st.booleans()),
        images=draw(st.sampled_from([2, 8])),
        levels=2,
        budgets=(100, 200, 300, 400)[4 - baselines :] if baselines > 1 else (),
    )
    matched = draw(st.sampled_from([None, "train_flops"]))
    search = {"sampler": "tpe", "objectives": ["gap/heldout"], "space": {"cells": 9}}
    searched = draw(st.booleans())
    more = {"sweep": {"sweep": {"match": matched, "search": {"trials": 9} if searched else None}}}
    return sweep, {**more, "search": search} if searched else more


@pytest.mark.long("seeds")
@settings(
    max_examples=150 if "TREAD_LAB_LONG" in os.environ else 3,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # shrinking writes hundreds of labs
    derandomize="TREAD_LAB_LONG" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(made=sweeps(), metric=st.sampled_from(["", FD]))
@example(made=(small(routes=ROUTES, seeds=(0, 1), states=ALONE), {}), metric="")
def test_every_number_is_one_text_everywhere(
    made: tuple[Synthetic, dict[str, Any]],
    metric: str,
    capsys: pytest.CaptureFixture[str],
    no_figures: None,
) -> None:
    sweep, plan = made
    with tempfile.TemporaryDirectory() as root:
        lab = write_sweep(Path(root), sweep)
        path = lab.sweep(sweep.name).plan_path
        write_json(path, {**(read_json(path) or {}), **plan})
        texts: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for place, shown in surfaces(lab, sweep.name, metric, capsys):
            for cell, quantity, text in shown:
                texts[plain(cell), quantity][place] = plain(text)
        measured = metric in trials_frame(lab, sweep.name)
    unlike = {thing: said for thing, said in texts.items() if len(set(said.values())) > 1}
    assert unlike == {}
    assert len(texts) > 3 or not measured


def surfaces(
    lab: Lab, name: str, metric: str, capsys: pytest.CaptureFixture[str]
) -> Iterator[tuple[str, Shown]]:
    """Everything that shows numbers of cells, as people or pages read it."""
    frame = trials_frame(lab, name)
    key = ranking_key(frame)
    if key is None or (metric and metric not in frame):
        return
    ranked = list(ranked_cells(frame, key)["cell"])
    yield "terminal", of_terminal(lab, name, ranked, key, capsys)
    yield "MLflow", of_mlflow(lab, name, key, ranked)
    chosen = metric or key
    numbers = ranking(frame, chosen, beside=[m for m in quality_metrics(frame) if m != chosen])
    cells, texts = [cell for _, cell in numbers.attrs["cells"]], formatted(numbers, chosen)
    yield "Markdown", of_rows(chosen, cells, *lines(to_markdown(texts), "|"))
    yield "LaTeX", of_rows(chosen, cells, *lines(to_latex(texts), "&"))
    yield "page", of_page(lab, name, key)
    yield "panel", of_panels(frame)


def of_rows(key: str, cells: list[str], heads: list[str], rows: list[list[str]]) -> Shown:
    """A ranking: one row a cell, its columns named; what intervals are over in one of them."""
    heads = [plain(head) for head in heads]
    assert len(cells) >= len(rows) > 0
    for cell, row in zip(cells, rows):
        texts = dict(zip(heads, row, strict=True))
        over = plain(texts.get("interval over", ""))
        each = dict(part.rsplit(": ", 1) for part in over.split(", ")) if ": " in over else {}
        for head, text in texts.items():
            quantity = {"gap": GAP_HELDOUT, "rank": f"rank by {key}"}.get(head, head)
            if head not in ("state", "interval over", "cell"):
                yield cell, quantity, text
            if "±" in plain(text) and "/" not in head.replace(HELDOUT_LOSS, ""):
                yield cell, f"over {quantity}", each.get(head, over)


def of_terminal(
    lab: Lab, name: str, cells: list[str], key: str, capsys: pytest.CaptureFixture[str]
) -> Shown:
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "width", 500)
        show_ranking(lab, name, as_json=False)
    head, *body = capsys.readouterr().out.splitlines()
    ends = [line.partition(" over ")[2].split(";")[0] for line in body if line.startswith("±")]
    places = [(match.start(), match[0]) for match in re.finditer(r"\S+(?: \S+)*", head)]
    stops = [start for start, _ in places[1:]] + [500]
    rows = [
        [line[start:stop].strip() for (start, _), stop in zip(places, stops)]
        for line in body[: len(cells)]
    ]
    heads = [name for _, name in places]
    if ends and "interval over" not in heads:  # a line below says it for all rows
        heads, rows = [*heads, "interval over"], [[*row, ends[0]] for row in rows]
    yield from of_rows(key, cells, heads, rows)


def of_mlflow(lab: Lab, name: str, key: str, cells: list[str]) -> Shown:
    text = note(ShownSweep(lab, lab.sweep(name).plan()), experiment="1")
    yield from of_rows(key, cells, *lines(text, "|"))


def of_panels(frame: pd.DataFrame) -> Shown:
    """The numbers of selected cells."""
    texts = {metric_label(metric): metric for metric in (*quality_metrics(frame), *COSTS)}
    for number, name in enumerate(frame[["role", "cell"]].drop_duplicates()["cell"]):
        for label, value, _, difference, over in panel_numbers(frame, number):
            metric = texts.get(label)
            if metric is not None and value:
                yield name, metric, value
            if metric is not None and "±" in difference and metric not in COSTS:
                yield name, delta_column(metric), difference
                yield name, f"over {delta_column(metric)}", over


def of_page(lab: Lab, name: str, key: str) -> Shown:
    found = contents(lab, name)
    names, table = [cell for _, cell in found["numbers"]], found["ranking"]
    yield from of_rows(key, [names[k] for k in table.cells], table.heads, table.rows)
    named = {metric_label(metric): metric for metric in COSTS}
    for cell, *texts in found["cost"].rows if found["cost"] else ():
        for head, text in zip(found["cost"].heads[1:], texts):
            if head in named:
                yield cell, named[head], text
    said, number = (
        found["answer"],
        r"([^\s;]+?(?: ± [^\s;]+?)?)(?: \(95% over (.+?)\))?[.;]?(?:\s|$)",
    )
    gap = re.search(f", a gap of {number}", plain(said.result))
    if not said.cell or gap is None:
        return
    yield said.cell, GAP_HELDOUT, gap[1]
    if "±" in gap[1]:
        yield said.cell, f"over {GAP_HELDOUT}", gap[2]


def lines(text: str, mark: str) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of a table of lines that a mark divides."""
    rows = [line for line in text.splitlines() if f" {mark} " in line]
    edge = slice(1, -1) if mark == "|" else slice(None)
    parts = [re.split(rf"(?<!\\)\{mark}", row.removesuffix(r" \\"))[edge] for row in rows]
    head, *body = [[part.strip() for part in row] for row in parts]
    return head, body


TYPE = {"\N{RIGHTWARDS ARROW}": "->", r"$\to$": "->", "$-$": "\N{MINUS SIGN}", r"$\pm$": "±"}


def plain(text: str) -> str:
    """A text with the arrows of the terminal and without the marks of LaTeX."""
    for mark, char in TYPE.items():
        text = text.replace(mark, char)
    return re.sub(r"\\(?=[^\w\s])", "", text)
