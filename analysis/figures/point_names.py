"""Names beside points: each at the nearest place where it covers no point and no other name."""

# P points, L lines, B boxes of [left, low, right, high] in points of the page

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tread_lab.analysis.figures import style

Array = NDArray[np.float64]

SIZE = 6.5  # of letters, points
_REACHES = (5.0, 9.0, 14.0, 20.0, 27.0, 35.0, 44.0, 54.0)  # of a name from its point, points
_DIRECTIONS = ((1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1), (0, 1), (0, -1))
_LED = 10.0  # a name that is further away is joined to its point by a line
_DOT = 3.0  # half the side of what a point covers


def write_names(
    ax: style.Axes,
    names: Sequence[str],
    places: Array,
    bars: Array,
    lines: Array,
    *,
    order: Iterable[int],
) -> list[int]:
    """Write the names of points, and return those for which there is no room.

    All else has to be drawn already: room is looked for in the axes as they are laid out now.

    Args:
        places: [P, 2] in the axes' units.
        bars: [P, 2] lengths of the vertical bars below and above each point.
        lines: [L, 2, 2] ends of level and upright lines that names shall not touch.
        order: the points to name, the most important one first.
    """
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]
    point = ax.figure.dpi / 72
    centres = _on_page(ax, places)
    ends = np.stack([places, places], axis=1)
    ends[:, :, 1] += bars * [-1, 1]
    straight = _on_page(ax, np.concatenate([ends, lines]))
    strokes = np.concatenate([straight.min(axis=1) - 1, straight.max(axis=1) + 1], axis=1)
    taken = np.concatenate([np.concatenate([centres - _DOT, centres + _DOT], axis=1), strokes])
    room = np.array(ax.get_window_extent().extents) / point
    left: list[int] = []
    for k in order:
        at = (float(places[k, 0]), float(places[k, 1]))
        name = ax.annotate(style.arrow(names[k]), at, (0, 0), textcoords="offset points")
        name.set(fontsize=SIZE, ha="center", va="center", in_layout=False)
        style.halo(name)
        extent = name.get_window_extent()
        size = np.array([extent.width, extent.height]) / point
        offset = _free_offset(centres[k], size, taken, room)
        if offset is None:
            name.remove()
            left.append(k)
            continue
        name.set_position((float(offset[0]), float(offset[1])))
        taken = np.concatenate([taken, _box(centres[k] + offset, size)[None]])
        if np.hypot(*_edge(offset, size)) > _LED:
            _lead(ax, at, _edge(offset, size))
    return left


def _on_page(ax: style.Axes, places: Array) -> Array:
    """Return places [..., 2] of the axes in points of the page."""
    flat: Array = ax.transData.transform(places.reshape(-1, 2)) / (ax.figure.dpi / 72)
    return flat.reshape(places.shape)


def _free_offset(centre: Array, size: Array, taken: Array, room: Array) -> Array | None:
    """Return where the middle of the nearest free box of a size lies, from a point."""
    for reach in _REACHES:
        for direction in np.array(_DIRECTIONS, float):
            offset = direction * (reach / np.hypot(*direction) + size / 2)
            box = _box(centre + offset, size)
            inside = (box[:2] >= room[:2]).all() and (box[2:] <= room[2:]).all()
            if inside and not _covered(box, taken) and not _crossed(centre, offset, size, taken):
                return np.asarray(offset)
    return None


def _box(place: Array, size: Array) -> Array:
    return np.concatenate([place - size / 2, place + size / 2])


def _covered(box: Array, taken_B4: Array) -> bool:
    """Return whether a box runs into any other one, touching included."""
    apart = (box[:2] > taken_B4[:, 2:]) | (box[2:] < taken_B4[:, :2])
    return bool((~apart.any(axis=1)).any())


def _crossed(centre: Array, offset: Array, size: Array, taken: Array) -> bool:
    """Return whether the line to a name runs through anything but its own point and bar."""
    edge = _edge(offset, size)
    away = float(np.hypot(*edge))
    steps = [centre + edge * s / away for s in np.arange(2 * _DOT, away, 2.0)]
    return any(_covered(np.concatenate([step, step]), taken) for step in steps)


def _edge(offset: Array, size: Array) -> Array:
    """Return where the box of a name is nearest to its point, from this point."""
    return np.asarray(np.clip(0.0, offset - size / 2, offset + size / 2))


def _lead(ax: style.Axes, at: tuple[float, float], to: Array) -> None:
    line = {"arrowstyle": "-", "color": style.GREY, "lw": 0.4, "shrinkA": 0, "shrinkB": _DOT}
    end = (float(to[0]), float(to[1]))
    drawn = ax.annotate("", at, end, textcoords="offset points", arrowprops=line)
    drawn.set_in_layout(False)
