"""What report and dashboard show alike: tables of texts, the words of a page, a sweep's times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

import pandas as pd

from tread_lab.analysis.figures.sentences import routed
from tread_lab.analysis.figures.style import MINUS
from tread_lab.records.metric_names import metric_kind
from tread_lab.records.sweep_folder import SweepFolder, seconds_spent
from tread_lab.specs.units import duration

ROWS = 60  # of a table; longer ones say how many are left out
TERMS = {
    "dense": "training without routes: every token passes through every block",
    "route i→j": (
        "blocks i to j are skipped by the routed tokens, which come back after block j (TREAD,"
        " arxiv.org/abs/2501.04765)"
    ),
    "s": "selection rate: the share of the tokens that are routed",
    "gap, Δ": (
        "a run's value less that of its dense baseline with the same seed, images and noise; blue"
        " is better, orange worse"
    ),
    "±": "half the width of the 95% interval of a mean; its table says over what",
    "disturbed": (
        "a time a tenth below what FLOPs allow, or a fifth away from those of the other cells:"
        " other work ran beside the run or its baseline, and the time says nothing about a route"
    ),
}


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


def terms(metrics: Iterable[str], name: Callable[[str], str] = str) -> dict[str, str]:
    """Return the words of every page, and the metrics of one by their `name`, each kind once."""
    first = {metric_kind(metric).meaning: name(metric) for metric in reversed(list(metrics))}
    return TERMS | {word: meaning for meaning, word in reversed(first.items()) if meaning}


def times_text(folder: SweepFolder, created: float | None) -> str:
    """Return `Planned on 25 November 2026, 04:59 UTC; worked at for 13 min; about 3 min left.`

    Args:
        created: when the plan was written; `None` where that is unknown.
    """
    planned = datetime.fromtimestamp(created or 0.0).astimezone()
    worked, left = seconds_spent(folder.spent_path), folder.time_left().strip(".")
    parts = (
        f"planned on {planned.day} {planned:%B %Y, %H:%M %Z}" if created else "",
        f"worked at for {duration(worked)}" if worked else "",
        f"about {left} left" if left else "",
    )
    text = "; ".join(filter(None, parts))
    return text and f"{text[0].upper()}{text[1:]}."
