"""Tables of texts as report and dashboard show them: real minus signs and arrows."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pandas as pd

from tread_lab.analysis.figures.sentences import routed
from tread_lab.analysis.figures.style import MINUS

ROWS = 60  # of a table; longer ones say how many are left out


@dataclass(frozen=True)
class Sheet:
    """A table inside the page; columns of numbers stand to the right, `more` rows are left out."""

    heads: list[str]
    rows: list[list[str]]
    numeric: list[bool]
    more: int = 0


def sheet(texts: pd.DataFrame, most: int = ROWS) -> Sheet:
    """Return a table of texts as a page shows it."""
    shown = texts.head(most).to_numpy().tolist()
    rows = [[typeset(str(cell)) for cell in row] for row in shown]
    numeric = [
        all(re.match(r"[+\u2212]?\d|$", row[k]) for row in rows) for k in range(len(texts.columns))
    ]
    return Sheet(list(map(str, texts.columns)), rows, numeric, max(0, len(texts) - most))


def typeset(text: str) -> str:
    """Return the text with real arrows and minus signs."""
    return routed(re.sub(r"(?<![\w.])-(?=\d)", MINUS, text))
