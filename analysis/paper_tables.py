"""Tables: the paper's published numbers with their sources, and a sweep's own like them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tread_lab.config.decode import decode
from tread_lab.config.errors import lookup
from tread_lab.config.model import SIZES
from tread_lab.config.run import RunSpec
from tread_lab.config.yaml_text import load_yaml
from tread_lab.cost.training import Cost, cost
from tread_lab.records.metric_names import MINUS, delta_column
from tread_lab.results import ranking_caption, require_metric, with_delta
from tread_lab.results.ranking import formatted, ranking, to_markdown

_STORED = load_yaml(
    Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"), "published.yaml"
)
SOURCES: Mapping[str, str] = _STORED["sources"]
PREFACE: str = _STORED["preface"]
TABLES: Mapping[str, Mapping[str, Any]] = _STORED["tables"]
TEASER: Mapping[str, list[tuple[float, float]]] = _STORED["teaser"]
FIG8_TITLE = "DiT-B/2, ImageNet-256\n(published)"
TABLE5_TITLE = "DiT-B/2 (published)\ndense by DDPM, routed by EDM"


def table(name: str) -> pd.DataFrame:
    """Return one of `TABLES`, such as `Table 5`; `attrs` holds its source, caption and note.

    Raises:
        UserError: unknown table.
    """
    stored = lookup(TABLES, name, "table")
    frame = _frame(stored)
    source, place = stored["source"]
    notes = {"caption": stored["caption"], "note": stored.get("note", "")}
    frame.attrs |= {"source": f"{SOURCES[source]}, {place}", **notes}
    return frame


def recipes() -> pd.DataFrame:
    """Return the details of each recipe; a blank cell is unknown."""
    return _frame(_STORED["recipes"])


def speed_ups() -> pd.DataFrame:
    """Return the printed speed-up factors of DiT-XL/2 with numerator and denominator."""
    return _frame(_STORED["speed_ups"])


def mixed(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether the dense and the routed number of each row have different recipes."""
    return table["recipe_dense"] != table["recipe_tread"]


def _frame(stored: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(stored["rows"], columns=stored["columns"])


FIG8: Mapping[tuple[int, int], float] = {  # FID less the baseline's; both ends inclusive
    (int(route.partition("->")[0]), int(route.partition("->")[2])): change
    for route, change, _ in TABLES["Fig. 8"]["rows"]
}


DAGGER = "\N{DAGGER}"  # on a difference of two recipes
HEADS = {
    "parameters_M": "parameters, M",
    "fid_dense": "FID, dense",
    "fid_tread": "FID, TREAD",
    "fid": "FID",
    "sfid": "sFID",
    "is": "IS",
    "fid_change": "change of FID",
    "gmac": "GMAC a step",
    "selection_rate": "selection rate",
    "printed_in": "printed in",
    "recipe_dense": "recipe, dense",
    "recipe_tread": "recipe, TREAD",
}


@dataclass(frozen=True)
class Table:
    """A table ready to be shown.

    Attributes:
        name, caption, note: `Table 5`, its content, and limits of comparisons.
        source: publication of the numbers.
        texts: the formatted cells.
    """

    name: str
    caption: str
    note: str
    source: str
    texts: pd.DataFrame

    def __repr__(self) -> str:
        return self.markdown

    @property
    def markdown(self) -> str:
        """Heading, table, source and note."""
        lines = [f"**{self.name}.** {self.caption}", "", to_markdown(self.texts)]
        return "\n".join([*lines, f"Source: {self.source}. {self.note}".strip(), ""])

    @property
    def latex(self) -> str:
        """A booktabs tabular under a comment with the source."""
        return f"% {self.name}: {self.caption} Source: {self.source}.\n{to_latex(self.texts)}"

    def _repr_markdown_(self) -> str:
        return self.markdown


def published_table(name: str) -> Table:
    """Return one of `TABLES`, such as `Table 5`."""
    frame = table(name)
    caption, note, source = (frame.attrs[key] for key in ("caption", "note", "source"))
    return Table(name, caption, note, source, _texts(frame))


def sweep_table(frame: pd.DataFrame, metric: str, note: str = "") -> Table:
    """Return a sweep's cells ranked by a metric, each beside its difference to its own baseline.

    The counterpart of Tables 2, 4, 5 and 6 for any sweep.

    Raises:
        UserError: unknown metric.
    """
    require_metric(frame, metric)
    beside = [column] if (column := delta_column(metric)) != metric else []
    texts = formatted(ranking(with_delta(frame, metric), metric, beside=beside), metric)
    caption = ranking_caption(metric, frame.attrs.get("comparison", ""))
    caption = f"{caption[0].upper()}{caption[1:]}."
    return Table("This sweep", caption, note, "the runs of this sweep", texts)


def sizes() -> pd.DataFrame:
    """Return the published sizes as built by tread-lab: shape, route 2->B-4, parameters, FLOPs.

    Parameters are the trainable ones with 4 output channels (no learned variance), in millions; a
    route adds none. Forward cost in GMAC on 256 tokens, dense and routed at s = 0.5.
    """
    columns = ["size", "width", "heads", "layers", "route", "parameters_M", "dense_gmac"]
    rows = []
    for size, (depth, width, heads) in SIZES.items():
        price = _cost(size, {"routes": ["2->B-4"]})
        shape = (size, width, heads, depth, f"2->{depth - 4}", price.parameters / 1e6)
        rows.append((*shape, price.dense.network / 1e9, price.routed.network / 1e9, price.speedup))
    return pd.DataFrame(rows, columns=[*columns, "routed_gmac", "speed_up"])


def parameters() -> pd.DataFrame:
    """Return trainable parameters of DiT-XL/2 with each method, as built by tread-lab.

    A route adds none, a mask decoder (MaskDiT) and a fusion (SPRINT) do; SD-DiT is not built here.
    """
    kinds: dict[str, dict[str, Any]] = {
        "DiT": {},
        "DiT + TREAD": {"routes": ["2->B-4"]},
        "MaskDiT": {"routes": ["0->B-1"], "bypass": "mask"},
        "SPRINT": {"routes": ["2->B-3"], "bypass": "sprint"},
    }
    rows = [(name, _cost("XL", tree).parameters / 1e6) for name, tree in kinds.items()]
    return pd.DataFrame(rows, columns=["model", "parameters_M"])


def _cost(size: str, tree: dict[str, Any]) -> Cost:
    """Return the cost of a published size on latents of ImageNet-256."""
    data = {"source": "latents", "channels": 4, "size": 32, "classes": 1000}
    return cost(decode(RunSpec, {"model": f"DiT-{size}/2", "data": data, **tree}))


def all_published() -> str:
    """Return all published results in Markdown."""
    tables = [published_table(name).markdown for name in TABLES]
    others = [to_markdown(_texts(f())) for f in (recipes, speed_ups)]
    return "\n".join([PREFACE, *others, *tables])


def _texts(frame: pd.DataFrame) -> pd.DataFrame:
    texts = pd.DataFrame({HEADS.get(c, c): _column(c, frame[c]) for c in frame.columns})
    if {"fid_dense", "fid_tread"} <= set(frame.columns):
        change = frame["fid_tread"] - frame["fid_dense"]
        place = list(texts.columns).index("FID, TREAD") + 1
        marks = mixed(frame).map({True: DAGGER, False: ""})
        texts.insert(place, "difference", [_two(v) + mark for v, mark in zip(change, marks)])
    return texts


def _column(name: str, values: pd.Series[float]) -> Sequence[str]:
    if name == "fid_change":
        return [_two(value) for value in values]
    if name.startswith("fid") or name in _TWO:
        return [f"{value:.2f}" if pd.notna(value) else "" for value in values]
    return [f"{v:g}" if isinstance(v, float) else str(v) for v in values]


_TWO = ("sfid", "is", "precision", "recall", "gmac")  # printed with two digits


def _two(value: float) -> str:
    return f"{value:+.2f}".replace("-", MINUS)


def to_latex(texts: pd.DataFrame) -> str:
    """Return a table of texts as a booktabs tabular."""
    lines = texts.astype(str).replace("\n", " ", regex=True)
    latex = lines.to_latex(index=False, escape=True)
    for mark, formula in {"->": r"$\to$", MINUS: "$-$", "\N{PLUS-MINUS SIGN}": r"$\pm$"}.items():
        latex = latex.replace(mark, formula)
    return latex


if __name__ == "__main__":
    print(all_published(), end="")
