"""Reading ahead: batches in order, read by threads, and never more than two ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tread_lab.prepare.reading import read_ahead


def test_each_batch_comes_in_order_with_what_was_read_of_its_places() -> None:
    batches = [range(3), range(3, 4), range(4, 9), range(9, 10)]
    with ThreadPoolExecutor(3) as readers:
        read = list(read_ahead(readers, lambda place: place * place, batches))
    assert read == [
        (range(3), [0, 1, 4]),
        (range(3, 4), [9]),
        (range(4, 9), [16, 25, 36, 49, 64]),
        (range(9, 10), [81]),
    ]


def test_two_batches_are_read_while_one_is_worked_on_and_no_more() -> None:
    taken: list[int] = []

    def batches() -> Iterator[list[int]]:
        for place in range(6):
            taken.append(place)
            yield [place]

    started = [threading.Event() for _ in range(6)]
    with ThreadPoolExecutor(2) as readers:
        reading = read_ahead(readers, lambda place: started[place].set(), batches())
        next(reading)
        assert taken == [0, 1, 2]
        assert started[1].wait(20) and started[2].wait(20)
        assert not started[3].is_set()
        next(reading)
        assert taken == [0, 1, 2, 3]


def test_an_image_that_cannot_be_read_is_raised_at_its_turn() -> None:
    def read(place: int) -> int:
        return 1 // (place - 1)

    with ThreadPoolExecutor(2) as readers:
        reading = read_ahead(readers, read, [[2], [1], [3]])
        assert next(reading) == ([2], [1])
        with pytest.raises(ZeroDivisionError):
            next(reading)


def test_no_batches_are_nothing() -> None:
    with ThreadPoolExecutor(1) as readers:
        assert list(read_ahead(readers, int, [])) == []
