"""The results of `gpu.py` or `cpu.py` as a page: a table for each phase, and on what device.

python benchmarks/performance.py OUT/results.jsonl ... PAGE.md [PHASE ...]

Without phases (the keys of `TITLES`) all are shown. A page that has the line `<!-- measured -->`
keeps what stands above it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MEASURED = "<!-- measured -->"
TITLES = {
    "whole": "A trial as a sweep runs it, with its evaluations",
    "copy": "Copies on the device",
    "product": "Matrix products of a block",
    "attention": "Attention, forward and backward pass, by backend",
    "step": "The training step",
    "against plain": "The training step beside a plain DiT's",
    "speed-up": "What routing gains, and what its FLOPs predict",
    "repeats": "Is a run repeated and resumed to the last bit?",
    "rate": "The rate of a step, of executed FLOPs",
    "profile": "Where the time of a step goes",
    "split": "Where the time of a step goes, by torch's profiler",
    "packed": "Four runs on one device beside one alone, with and without MPS",
    "sampling": "A call of the network, and 10,000 images by Heun's 40 steps",
    "part": "What else 10,000 images cost: decoding, writing",
    "host": "What the host does in a step",
    "scaling": "A step and its forecast against tokens, depth, rate and batch",
}


def page(rows: list[dict[str, Any]], measured: datetime, phases: Iterable[str] = TITLES) -> str:
    """Return the page of these results."""
    device = next(row for row in rows if row["what"] == "device")
    names = " and ".join(dict.fromkeys(row["name"] for row in rows if row["what"] == "device"))
    versions = f"torch {device['torch']}" + (f", CUDA {device['cuda']}" if "cuda" in device else "")
    script = "gpu.py" if "cuda" in device else "cpu.py"
    lines = [
        f"Measured on {names}, {versions}, {measured:%d %B %Y}, by `benchmarks/{script}`.",
        "Columns that say *predicted* are arithmetic; all others are medians of measured times.",
        "Brackets hold the median in 95% of repetitions; below six rounds they are the extremes.",
    ]
    for what in phases:
        found = [row for row in rows if row["what"] == what]
        if found:
            lines += ["", f"## {TITLES[what]}", "", *table(found)]
    return "\n".join(lines) + "\n"


def read(results: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the rows of several files in their order."""
    return [json.loads(line) for path in results for line in path.read_text().splitlines()]


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows as a Markdown table; a column for each key that any of them has."""
    keys = [k for k in dict.fromkeys(k for row in rows for k in row) if k not in ("phase", "what")]
    cells = [[_cell(row.get(key)) for key in keys] for row in rows]
    head = [f"| {' | '.join(keys)} |", f"|{'---|' * len(keys)}"]
    return [*head, *(f"| {' | '.join(row)} |" for row in cells)]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return "{:.3g} [{:.3g}, {:.3g}]".format(*value)
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "/")


def main() -> None:
    """Write the page, below what stands in it by hand."""
    phases = [name for name in sys.argv[1:] if name in TITLES] or TITLES
    *results, target = (Path(name) for name in sys.argv[1:] if name not in TITLES)
    above = target.read_text().partition(MEASURED)[0] if target.exists() else "# Performance\n\n"
    measured = datetime.fromtimestamp(max(path.stat().st_mtime for path in results), UTC)
    target.write_text(f"{above}{MEASURED}\n\n{page(read(results), measured, phases)}")
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
