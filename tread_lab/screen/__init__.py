"""What people see in the terminal: the plan, live progress, rankings and states."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tread_lab.screen.console import answer, metrics_line, say, show_pairs
    from tread_lab.screen.disk import DiskWatch, show_disk
    from tread_lab.screen.gc import show_removable
    from tread_lab.screen.live_progress import progress, run_progress
    from tread_lab.screen.plan import show_budget, show_evaluation_time, show_plan
    from tread_lab.screen.ranking import show_places, show_ranking
    from tread_lab.screen.status import (
        show_lab,
        show_run,
        show_sweep,
        show_unfinished,
        watch_sweep,
    )

_PARTS = {
    "console": ("answer", "metrics_line", "say", "show_pairs"),
    "disk": ("DiskWatch", "show_disk"),
    "gc": ("show_removable",),
    "plan": ("show_budget", "show_evaluation_time", "show_plan"),
    "live_progress": ("progress", "run_progress"),
    "ranking": ("show_places", "show_ranking"),
    "status": ("show_lab", "show_run", "show_sweep", "show_unfinished", "watch_sweep"),
}

__all__ = [
    "DiskWatch",
    "answer",
    "metrics_line",
    "progress",
    "run_progress",
    "say",
    "show_budget",
    "show_disk",
    "show_lab",
    "show_removable",
    "show_pairs",
    "show_places",
    "show_evaluation_time",
    "show_plan",
    "show_ranking",
    "show_run",
    "show_sweep",
    "show_unfinished",
    "watch_sweep",
]


def __getattr__(name: str) -> Any:
    """A part is imported when it is used: `status` needs neither torch nor pandas."""
    for part, names in _PARTS.items():
        if name in names:
            return getattr(importlib.import_module(f"tread_lab.screen.{part}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
