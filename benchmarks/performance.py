"""The results of `benchmarks/gpu.py` as a page: a table for each phase, and on what device.

python benchmarks/performance.py OUT PAGE.md
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

TITLES = {
    "copy": "Copies on the device",
    "product": "Matrix products of a block, 256 images of 256 tokens",
    "attention": "Attention, forward and backward pass, by backend",
    "path": "Every path once: its loss against the CPU's in fp32",
    "step": "The training step",
    "speed-up": "What routing gains, and what its FLOPs predict",
    "repeats": "Is a run repeated and resumed to the last bit?",
    "captured": "The whole step as one CUDA graph",
    "profile": "Where the time of a step goes",
    "sampling": "A call of the network, and 10,000 images by Heun's 40 steps",
    "host": "What the host does in a step",
    "scaling": "The gain against tokens, depth, rate and batch",
}


def page(rows: list[dict[str, Any]], measured: datetime) -> str:
    """Return the page of these results."""
    (device,) = (row for row in rows if row["what"] == "device")
    versions = f"torch {device['torch']}, CUDA {device['cuda']}"
    lines = [
        "# Performance",
        "",
        f"Measured on {device['name']}, {versions}, {measured:%d %B %Y}, by `benchmarks/gpu.py`.",
        "Columns that say *predicted* are arithmetic; all others are medians of measured times.",
    ]
    for what, title in TITLES.items():
        found = [row for row in rows if row["what"] == what]
        if found:
            lines += ["", f"## {title}", "", *table(found)]
    return "\n".join(lines) + "\n"


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows as a Markdown table; a column for each key that any of them has."""
    keys = [k for k in dict.fromkeys(k for row in rows for k in row) if k not in ("phase", "what")]
    cells = [[_cell(row.get(key)) for key in keys] for row in rows]
    head = [f"| {' | '.join(keys)} |", f"|{'---|' * len(keys)}"]
    return [*head, *(f"| {' | '.join(row)} |" for row in cells)]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "/")


def main() -> None:
    """Write the page."""
    results, target = Path(sys.argv[1]) / "results.jsonl", Path(sys.argv[2])
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    target.write_text(page(rows, datetime.fromtimestamp(results.stat().st_mtime, UTC)))
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
