"""What tests of figures share: what a figure shows, as text; a frame with energy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save figures as empty files: rendering them takes most of the time."""

    def save(self: Figure, path: Any, **options: Any) -> None:
        path.write(b"") if hasattr(path, "write") else Path(path).write_bytes(b"")

    monkeypatch.setattr(Figure, "savefig", save)


@pytest.fixture
def metered_frame() -> pd.DataFrame:
    """Five routes beside a dense run of 60 kJ and 2 h; 2->8 spends 42 kJ and 1.5 h."""
    spent = {  # gap, its interval, kJ, hours
        "dense": (float("nan"), float("nan"), float("nan"), 60.0, 2.0),
        "2->8": (-0.002, -0.003, -0.001, 42.0, 1.5),
        "0->8": (0.004, 0.003, 0.005, 36.0, 1.2),
        "4->8": (0.001, -0.001, 0.003, 50.0, 1.7),
        "0->10": (0.009, 0.008, 0.010, 36.0, 1.1),
        "5->6": (0.002, 0.001, 0.003, 63.0, 2.1),
    }
    gap, low, high, kilojoules, hours = map(list, zip(*spent.values()))
    dense = [name == "dense" for name in spent]
    frame = pd.DataFrame(
        {
            "run": list(spent),
            "role": ["baseline" if is_dense else "trial" for is_dense in dense],
            "cell": [name if is_dense else f"{name} s=0.5" for name, is_dense in zip(spent, dense)],
            "route": list(spent),
            "seed": 0,
            "state": "completed",
            "reason": "",
            "baseline": [None if is_dense else "dense" for is_dense in dense],
            "gap/heldout": gap,
            "gap/heldout:low": low,
            "gap/heldout:high": high,
            "gap/heldout:n": [float("nan") if is_dense else 32.0 for is_dense in dense],
            "cost/train_seconds": [3600 * h for h in hours],
            "energy/joules": [1000 * kj for kj in kilojoules],
        }
    )
    frame.attrs |= {"axes": ["start", "end"], "foreign": []}
    return frame


def seen(fig: Figure) -> Iterator[str]:
    """Yield what a figure shows, a line for each thing that is drawn, and its size."""
    yield f"{_numbers(fig.get_size_inches())} inches"
    for ax in fig.axes:
        limits = f"x {_numbers(ax.get_xlim())} {ax.get_xscale()}, y {_numbers(ax.get_ylim())}"
        yield f"axes {ax.get_title('left')!r}, {ax.get_xlabel()!r}, {ax.get_ylabel()!r}: {limits}"
        yield from _marks(ax)
        texts = [text.get_text() + _plate(text) for text in ax.texts if text.get_text()]
        yield f"  texts {texts}"
        yield f"  ticks {[t.get_text() for t in (*ax.get_xticklabels(), *ax.get_yticklabels())]}"
    legends = [*fig.legends, *filter(None, (ax.get_legend() for ax in fig.axes))]
    yield f"legends {[text.get_text() for legend in legends for text in legend.get_texts()]}"
    yield fig.get_supxlabel()


def _marks(ax: Axes) -> Iterator[str]:
    for line in ax.lines:
        if line.get_marker() in ("|", "_"):  # the end of an error bar
            continue
        places = zip(*map(np.atleast_1d, line.get_data()))
        hollow = "hollow " * (line.get_markerfacecolor() == "white")
        look = f"{to_hex(line.get_color())} {line.get_linestyle()}{line.get_marker()} {hollow}"
        name = "" if str(line.get_label()).startswith("_") else line.get_label()
        yield f"  line {look}{name!r}: {' '.join(map(_numbers, places))}"
    for patch in ax.patches:
        assert isinstance(patch, Rectangle)
        look = f"{to_hex(patch.get_facecolor())}, {to_hex(patch.get_edgecolor())}"
        width = f"{patch.get_linewidth():g} {patch.get_linestyle()} {patch.get_hatch() or ''}"
        yield f"  box {look} {width}: {_numbers(patch.get_bbox().bounds)}"
    for image in ax.images:
        yield f"  image {image.get_size()}: {_numbers(image.get_clim())}"
    for bars in ax.collections:
        paths = (path.vertices for path in bars.get_paths())
        yield f"  bars {' '.join(_numbers(np.ravel(path)) for path in paths if len(path) == 2)}"


def _plate(text: Text) -> str:
    """Return the colour of the box behind a text, if it has one."""
    plate = text.get_bbox_patch()
    return "" if plate is None else f" on {to_hex(plate.get_facecolor(), keep_alpha=True)}"


def _numbers(values: Iterable[Any]) -> str:
    return ",".join(f"{value:.4g}" for value in values)
