"""Each option stands once: its type says how it is read."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from tread_lab.cli import parse
from tread_lab.commands.declare import (
    count,
    not_negative,
    positive,
    words_of,
)
from tread_lab.commands.options import Sweep


@pytest.mark.parametrize(
    ("read", "values", "refused"),
    [
        (not_negative, {"0": 0.0, "0.5": 0.5}, ["-0.1", "inf", "nan", "x"]),
        (positive, {"1": 1, "20": 20}, ["0", "-1", "1.5", ""]),
        (count, {"0": 0, "3": 3}, ["-1", "0.5"]),
    ],
)
def test_a_number_out_of_its_range_is_refused(
    read: Callable[[str], object], values: dict[str, object], refused: list[str]
) -> None:
    assert {text: read(text) for text in values} == values
    for text in refused:
        with pytest.raises((argparse.ArgumentTypeError, ValueError)):
            read(text)


def test_the_words_of_options_ask_for_them_again() -> None:
    words = ["--hang-timeout=0.0", "--gpus=0.5", "--tracker=none", "--name=x"]
    options = parse(["sweep", "tiny", *words])
    assert sorted(words_of(options, Sweep)) == sorted(words)
    assert words_of(options, Sweep, without=("--name", "--tracker", "--gpus")) == words[:1]
