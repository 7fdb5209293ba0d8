"""Tables of texts as report and dashboard show them: real minus signs, arrows and powers of ten."""

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
    rows = [[routed(_minus(str(cell))) for cell in row] for row in texts.to_numpy().tolist()]
    numeric = [
        all(re.match(r"[+\u2212]?\d|$", row[k]) for row in rows) for k in range(len(texts.T))
    ]
    return Sheet([_power(str(c)) for c in texts.columns], rows[:most], numeric, len(rows[most:]))


def _minus(text: str) -> str:
    """Return the text with real minus signs."""
    return re.sub(r"(?<![\w.])-(?=\d)", MINUS, text)


def _power(head: str) -> str:
    """Return `gap (1e-3)` as `gap (x 10^-3)` with real signs and digits."""
    raised = str.maketrans(
        "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
    )
    return re.sub(r"1e(-?\d+)", lambda m: f"\u00d7 10{m[1].translate(raised)}", head)
