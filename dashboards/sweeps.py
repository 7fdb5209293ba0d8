"""The list of a lab's sweeps: question, state, best gap with its interval, age."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from tread_lab.config.errors import UserError
from tread_lab.config.units import counts_text, duration
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import metric_label
from tread_lab.results import ranked_cells, ranking_key, result_texts, routed, trials_frame


def sweep_lines(lab: Lab) -> list[dict[str, Any]]:
    """Return a line for each sweep, the newest first; of one that cannot be read it says why."""
    lines = []
    for name in lab.sweeps():
        try:
            lines.append(_line(lab, name))
        except UserError as error:
            lines.append({"name": name, "question": str(error), "states": "", "best": "", "at": 0})
    for line in lines:
        line["age"] = f"{duration(time.time() - line['at'])} ago" if line["at"] else ""
    return sorted(lines, key=lambda line: -line["at"])


def _line(lab: Lab, name: str) -> dict[str, Any]:
    plan, frame = lab.sweep(name).plan(), trials_frame(lab, name)
    states, key = Counter(map(str, frame.drop_duplicates("run")["state"])), ranking_key(frame)
    best = ""
    if key is not None:
        cells = ranked_cells(frame, key)
        first = cells[cells["role"] == "trial"].head(1)
        number = result_texts(first, key)
        best = f"{routed(first['cell'].iloc[0])}: {metric_label(key)} {number[0]}" if number else ""
    return {
        "name": name,
        "question": plan.question,
        "states": counts_text(states),
        "best": best,
        "at": plan.created or 0,
    }
