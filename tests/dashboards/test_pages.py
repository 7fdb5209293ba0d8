"""What the server answers of a sweep as a whole, address by address, against files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.four_sweeps import said, same_as_stored
from tread_lab.dashboards.pages import Pages
from tread_lab.records.lab import Lab

ANSWERS = Path(__file__).parent / "answers"
OF_NOW = re.compile(r".*/(age|times|created|version|path): ")  # of the clock or this machine


@pytest.fixture
def pages(one_of_four: tuple[str, Lab, str]) -> Pages:
    """The pages of one of four labs, whose sweep has been read."""
    _, lab, sweep = one_of_four
    found = Pages(lab)
    found.live(sweep).snapshot(wait=60)
    return found


def test_what_each_address_says(one_of_four: tuple[str, Lab, str], pages: Pages) -> None:
    name, lab, sweep = one_of_four
    tree = pages.sweep(sweep)
    answers = {
        "lab": pages.lab_page(),
        "sweep": tree,
        "its last metric": pages.sweep(sweep, metric=tree["metrics"][-1])["cells"],
        "cells": [pages.cell(sweep, "0"), pages.cell(sweep, "1")],
    }
    lines = (line for line in said(answers) if not OF_NOW.match(line))
    text = "\n".join(lines) + "\n"
    same_as_stored(ANSWERS / f"{name}.txt", text.replace(str(lab.root), "LAB"))
