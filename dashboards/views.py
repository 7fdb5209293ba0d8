"""What stands around the map, as plain trees: answer, counts, failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pandas as pd

from tread_lab.analysis.report.answer import Answer
from tread_lab.analysis.report.page import terms
from tread_lab.dashboards.cell_map import (
    Tree,
    cell_numbers,
    settled,
)
from tread_lab.frames import (
    STATES,
    own_metrics,
    ranked_cells,
    ranking_key,
)
from tread_lab.records.metric_names import GAP_HELDOUT, HELDOUT_LOSS
from tread_lab.records.plan import StoredPlan

FAILURES = 200  # rows of the list of failures


def overview(plan: StoredPlan, frame: pd.DataFrame, said: Answer | None = None) -> Tree:
    """Return what stands beside the cells: question, answer, metrics to choose from, failures."""
    shown = choices(frame)
    return {
        "name": plan.name,
        "question": plan.question or f"The sweep {plan.name}",
        "compared": plan.comparison,
        "answer": said and vars(said),
        "best": best(frame, said.cell if said else ""),
        "metrics": shown,
        "metric": shown[0] if shown else None,
        "terms": terms(shown),
        "holes": [{"count": hole.count, "reason": hole.why} for hole in plan.excluded],
        "failures": failures(frame),
    }


def counts(states: Iterable[str], awaited: int) -> dict[str, int]:
    """Return how many runs are in each state; those are pending that a search will suggest."""
    counted = Counter(map(str, states))
    counted["pending"] += awaited
    return {state: count for state, count in counted.items() if count}


def best(frame: pd.DataFrame, cell: str = "") -> int | None:
    """Return the number of the cell that the answer names; without one, of the best ranked."""
    if cell:
        return cell_numbers(frame)["trial", cell]
    key = ranking_key(frame)
    if key is None:
        return None
    named = ["run", "role", "seed", "state", "reason", "baseline", "cell", key]
    ranked = ranked_cells(settled(frame[named]), key)
    trials = ranked[(ranked["role"] == "trial") & ranked["rank"].notna()]
    pairs = zip(trials["role"], trials["cell"])
    return next((cell_numbers(frame)[pair] for pair in pairs), None)


def to_suggest(plan: StoredPlan) -> int:
    """Return the runs that a search has yet to suggest, by its sweep file; 0 without a search."""
    seeds = plan.sweep_file.get("seeds") or {trial.seed for trial in plan.trials}
    return plan.to_suggest * len(seeds)


def choices(frame: pd.DataFrame) -> list[str]:
    """Return the metrics that a heatmap can show.

    The `ranking_key` comes first, then gap and loss, samples, other gaps and costs.
    """
    columns = [c for c in own_metrics(frame) if ":" not in c]
    first = [c for c in (ranking_key(frame), GAP_HELDOUT, HELDOUT_LOSS) if c in columns]
    samples = [c for c in columns if "@" in c]
    gaps = [c for c in columns if c.startswith("gap/")]
    return list(dict.fromkeys([*first, *samples, *gaps, *columns]))


def failures(frame: pd.DataFrame) -> list[Tree]:
    """Return trials that ended without a result, and finished ones that could not be compared.

    `number` is the place of the trial's cell in `cells`.
    """
    told = frame[["role", "cell", "run", "seed", "state", "reason"]]
    ended = told["state"].isin(["failed", "diverged", "stopped", "interrupted"])
    rows = told[ended | ((told["reason"] != "") & (told["state"] == "completed"))]
    if rows.empty:
        return []
    order = {state: k for k, state in enumerate(reversed(STATES))}
    rows = rows.sort_values("state", key=lambda states: states.map(order), kind="stable")
    place = cell_numbers(frame)
    return [
        {
            **{column: str(row[column]) for column in ("cell", "run", "state", "reason")},
            "seed": int(row["seed"]),
            "number": place[row["role"], row["cell"]],
        }
        for row in rows.head(FAILURES).to_dict("records")
    ]
