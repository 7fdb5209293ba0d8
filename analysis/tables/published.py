"""Published numbers with their sources, kept apart from everything measured here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from tread_lab.config.errors import lookup
from tread_lab.config.yaml_text import load_yaml

_STORED = load_yaml(
    Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"), "published.yaml"
)
SOURCES: Mapping[str, str] = _STORED["sources"]
PREFACE: str = _STORED["preface"]
TABLES: Mapping[str, Mapping[str, Any]] = _STORED["tables"]
TEASER: Mapping[str, list[tuple[float, float]]] = _STORED["teaser"]
FIG8_TITLE = "DiT-B/2, ImageNet-256 (published)"
TABLE5_TITLE = "DiT-B/2 (published: dense by DDPM, routed by EDM)"


def table(name: str) -> pd.DataFrame:
    """Return one of `TABLES`, such as `Table 5`; `attrs` holds its source, caption and note.

    Raises:
        UserError: there is no such table.
    """
    stored = lookup(TABLES, name, "table")
    frame = _frame(stored)
    source, place = stored["source"]
    notes = {"caption": stored["caption"], "note": stored.get("note", "")}
    frame.attrs |= {"source": f"{SOURCES[source]}, {place}", **notes}
    return frame


def recipes() -> pd.DataFrame:
    """Return what stands behind each recipe. A blank is what we could not read."""
    return _frame(_STORED["recipes"])


def speed_ups() -> pd.DataFrame:
    """Return the printed speed-up factors of DiT-XL/2 with what each divides by what."""
    return _frame(_STORED["speed_ups"])


def mixed(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether the dense and the routed number of each row are of two recipes."""
    return table["recipe_dense"] != table["recipe_tread"]


def _frame(stored: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(stored["rows"], columns=stored["columns"])


FIG8: Mapping[tuple[int, int], float] = {  # FID less the baseline's; both ends inclusive
    (int(route.partition("->")[0]), int(route.partition("->")[2])): change
    for route, change, _ in TABLES["Fig. 8"]["rows"]
}
