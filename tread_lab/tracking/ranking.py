"""The cells of a sweep by their gap to the baseline, mean and interval over seeds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tread_lab.compare.gaps import PairedGap, gap_over_seeds
from tread_lab.records.metric_names import GAP_HELDOUT
from tread_lab.tracking.mlflow_names import from_mlflow

SHOWN = 12  # rows of the table in a note


@dataclass(frozen=True)
class Ranked:
    """A cell with its gap: over seeds where there are several, else over images."""

    cell: str
    gap: PairedGap
    seeds: int


@dataclass(frozen=True)
class Shown:
    """What is told of a trial in its sweep's own run; `ended` in milliseconds, 0 before that."""

    cell: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    ended: int


def common_metrics(trials: Iterable[Shown]) -> set[str]:
    """All metrics but those of samples that few trials have: another sweep asked for them."""
    measured = [set(trial.metrics) for trial in trials if trial.metrics]
    times = Counter(name for found in measured for name in found)
    most = max((n for name, n in times.items() if from_mlflow(name) != name), default=0)
    return {name for name, n in times.items() if from_mlflow(name) == name or 2 * n > most}


def ranking(trials: Iterable[Shown]) -> list[Ranked]:
    """Cells from best to worst."""
    cells: dict[str, list[PairedGap]] = defaultdict(list)
    for trial in trials:
        mean = trial.metrics.get(GAP_HELDOUT)
        if mean is not None:
            low, high = (trial.metrics.get(f"{GAP_HELDOUT}_{end}", mean) for end in ("low", "high"))
            cells[trial.cell].append(PairedGap(mean, low, high, 0, "images"))
    ranked = [
        Ranked(cell, gaps[0] if len(gaps) == 1 else gap_over_seeds(gaps), len(gaps))
        for cell, gaps in cells.items()
    ]
    return sorted(ranked, key=lambda row: (row.gap.mean, row.cell))


def as_markdown(rows: Sequence[Ranked]) -> str:
    """The best cells as a table."""
    lines = ["| | cell | gap/heldout | 95% interval | seeds |", "|---|---|---|---|---|"]
    for place, row in enumerate(rows[:SHOWN], start=1):
        gap = row.gap
        ends = f"{gap.low:+.4f} to {gap.high:+.4f} over {gap.unit}"
        lines.append(f"| {place} | `{row.cell}` | {gap.mean:+.4f} | {ends} | {row.seeds} |")
    if len(rows) > SHOWN:
        lines += ["", f"and {len(rows) - SHOWN} more in `ranking.csv` among the artifacts"]
    return "\n".join(lines)


def as_csv(rows: Sequence[Ranked]) -> str:
    """All cells; a cell's name holds no comma."""
    lines = ["cell,gap_heldout,low,high,interval_over,seeds"]
    for row in rows:
        gap, cell = row.gap, row.cell.replace(",", ";")
        lines.append(f"{cell},{gap.mean:.6g},{gap.low:.6g},{gap.high:.6g},{gap.unit},{row.seeds}")
    return "\n".join(lines) + "\n"
