"""What people see in the terminal: the plan, live progress, rankings and states."""

from tread_lab.screen.console import metrics_line, say, show_pairs
from tread_lab.screen.plan import show_plan
from tread_lab.screen.progress import progress, run_progress
from tread_lab.screen.ranking import show_places, show_ranking
from tread_lab.screen.states import (
    show_lab,
    show_run,
    show_sweep,
    show_unfinished,
    watch_sweep,
)

__all__ = [
    "metrics_line",
    "progress",
    "run_progress",
    "say",
    "show_lab",
    "show_pairs",
    "show_places",
    "show_plan",
    "show_ranking",
    "show_run",
    "show_sweep",
    "show_unfinished",
    "watch_sweep",
]
