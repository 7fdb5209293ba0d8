"""What tests of figures share: what a figure shows, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
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
