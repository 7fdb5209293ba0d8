"""Names of points cover no point, no bar, no line and no other name; the rest are left out."""

from __future__ import annotations

import itertools

import numpy as np
from matplotlib.text import Annotation

from tread_lab.analysis.figures.point_names import write_names
from tread_lab.analysis.figures.style import PAGE, Axes, figure

NO_LINES = np.zeros((0, 2, 2))


def points(places: np.ndarray, *, height: float = 3.0) -> Axes:
    _, (ax,) = figure(width=PAGE, height=height)
    ax.plot(*places.T, "o")
    ax.set_xlim(0, 10)
    ax.set_ylim(0, 10)
    return ax


def boxes(ax: Axes) -> list[np.ndarray]:
    """Of all names as they are drawn: left, low, right, high."""
    ax.figure.canvas.draw()
    texts = [text for text in ax.texts if isinstance(text, Annotation) and text.get_text()]
    return [np.array(text.get_window_extent().extents) for text in texts]


def meet(one: np.ndarray, other: np.ndarray) -> bool:
    return bool((one[:2] < other[2:]).all() and (other[:2] < one[2:]).all())


def test_names_of_a_crowd_meet_neither_each_other_nor_a_point() -> None:
    places = np.random.default_rng(0).normal(5, 0.8, size=(20, 2))
    ax = points(places)
    names = [f"{k}->{k + 10}" for k in range(20)]
    left = write_names(ax, names, places, np.full((20, 2), 0.3), NO_LINES, order=range(20))
    found = boxes(ax)
    assert len(found) == 20 - len(left) and len(found) >= 14
    assert not any(meet(one, other) for one, other in itertools.combinations(found, 2))
    dots = ax.transData.transform(places)
    assert not any(meet(box, np.tile(dot, 2)) for box in found for dot in dots)
    leads = [text for text in ax.texts if isinstance(text, Annotation) and not text.get_text()]
    ax.figure.draw_without_rendering()
    point = ax.figure.dpi / 72
    own = [int(t.get_text().partition("$")[0]) for t in ax.texts if t.get_text()]
    away = [np.hypot(*(np.clip(dots[k], b[:2], b[2:]) - dots[k])) for k, b in zip(own, found)]
    assert len(leads) == sum(distance > 10 * point for distance in away) > 0
    for n, (k, box, length) in enumerate(zip(own, found, away)):
        edge = np.clip(dots[k], box[:2], box[2:]) - dots[k]
        line = [dots[k] + edge * s / length for s in np.arange(6 * point, length, 1.0)]
        # Beyond 6 points it runs through no point and no name that was there.
        others = [np.concatenate([b[:2] + point, b[2:] - point]) for b in found[:n]]
        others += [np.concatenate([d - point, d + point]) for d in np.delete(dots, k, 0)]
        assert not any(meet(np.tile(at, 2), other) for at in line for other in others)
    for lead in leads:  # ends where a box begins
        end = ax.transData.transform(lead.xy) + np.array(lead.xyann) * ax.figure.dpi / 72
        within = [np.concatenate([end - box[:2], box[2:] - end]) for box in found]
        assert min(abs(inside.min()) for inside in within) < 1.5
        first, *_, last = lead.arrow_patch.get_path().vertices
        gaps = [np.hypot(*(first - end)), np.hypot(*(last - ax.transData.transform(lead.xy)))]
        assert gaps[0] < 1 < gaps[1]  # the name is reached, the point is not


def test_a_lone_name_stands_to_the_right_of_its_point() -> None:
    place = np.array([[5.0, 5.0]])
    ax = points(place)
    assert write_names(ax, ["2->8"], place, np.zeros((1, 2)), NO_LINES, order=[0]) == []
    (box,), (dot,) = boxes(ax), ax.transData.transform(place)
    assert 3 < box[0] - dot[0] < 20 and abs((box[1] + box[3]) / 2 - dot[1]) < 2
    assert ax.texts[0].get_text() == r"2$\to$8"


def test_a_line_through_a_point_is_not_written_on() -> None:
    place = np.array([[5.0, 5.0]])
    ax = points(place)
    level = np.array([[[0.0, 5.0], [10.0, 5.0]]])
    write_names(ax, ["dense"], place, np.zeros((1, 2)), level, order=[0])
    (box,), (dot,) = boxes(ax), ax.transData.transform(place)
    assert box[1] > dot[1]


def test_a_name_stays_inside_its_axes() -> None:
    place = np.array([[10.0, 5.0]])
    ax = points(place)
    write_names(ax, ["a long name"], place, np.zeros((1, 2)), NO_LINES, order=[0])
    (box,) = boxes(ax)
    assert box[2] <= ax.get_window_extent().x1


def test_the_first_points_in_order_get_the_room_there_is() -> None:
    places = np.full((60, 2), 5.0)
    ax = points(places, height=1.2)
    names = [f"name {k}" for k in range(60)]
    left = write_names(ax, names, places, np.zeros((60, 2)), NO_LINES, order=reversed(range(60)))
    assert 59 not in left and 0 in left and sorted(left, reverse=True) == left
