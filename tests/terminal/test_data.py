"""What making data sets prints: how far it is, its rate, what it holds, its settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.terminal.conftest import Screen
from tread_lab.data.measure import Measured
from tread_lab.data.packed import Steps
from tread_lab.terminal.data import show_measured, show_packed
from tread_lab.terminal.progress import progress_line

MANIFEST: dict[str, Any] = {
    "made_with": {"scale": 0.18215, "classes": 1000},
    "samples": 40,
    "labels": 7,
    "latent": [4, 32, 32],
    "damaged": 2,
    "files": {"latents.npy": {"bytes": 2_000_000}},
}
MEASURED = Measured(
    (2, 4, 4), (3, 1, 0, 2), np.array([0.5, -1.0]), np.array([5.0, 5.2]), 0.25, 5.0, -9.0, 8.0
)


@pytest.mark.parametrize(
    ("step", "seconds", "line"),
    [
        (Steps(0, 100), 9.0, "0/100 images"),
        (Steps(50, 1000, 1), 1.0, "50/1,000 images, 1 damaged"),
        (Steps(1234, 5678), 1.99, "1,234/5,678 images"),
        (Steps(1234, 5678), 2.0, "1,234/5,678 images, 617/s, 7 s left"),
        (Steps(100, 5678, 3), 81.0, "100/5,678 images, 1.23/s, 75 min left, 3 damaged"),
    ],
)
@pytest.mark.parametrize("earlier", [0, 60])
def test_progress_says_damage_and_after_two_seconds_rate_and_time_left(
    step: Steps, seconds: float, line: str, earlier: int
) -> None:
    """The rate is that of this session."""
    resumed = step._replace(done=step.done + earlier, total=step.total + earlier)
    line = line.replace(f"{step.done:,}/{step.total:,}", f"{resumed.done:,}/{resumed.total:,}")
    assert progress_line(resumed, "images", seconds, earlier=earlier) == line


def test_a_packed_set_is_shown_with_its_settings(screen: Screen) -> None:
    statistics = {"statistics.json": {"bytes": 1500}, "b.npy": {"bytes": 500}}
    for title, changes in {
        "two images are damaged": {},
        "whole, its classes those of its labels": {"made_with": {}, "damaged": 0, "samples": 1},
        "packed of scaled shards": {"made_with": {"packed": "shards", "scaled": True}},
        "encoded today": {"made_with": {"encoder": {}, "files": "0123"}},
        "packed of a folder": {"made_with": {"packed": "folder"}},
        "packed of a folder, 16 channels": {
            "made_with": {"packed": "folder"}, "latent": [16, 4, 4]
        },
        "with statistics": {
            "made_with": {"packed": "safetensors", "scaled": True}, "files": statistics
        },
        "with statistics, encoded": {"files": statistics},
        "with a range": {"made_with": {"decoder_range": "[0, 1]"}},
    }.items():  # fmt: skip
        screen(title, show_packed, Path("latents"), {**MANIFEST, **changes}, as_json=False)
    screen("for scripts", show_packed, Path("latents"), MANIFEST, as_json=True)


def test_measured_values_are_a_table_and_scales(screen: Screen) -> None:
    for title, changes in {
        "a class without samples": {},
        "classes of one size, no spread of an encoder": {"counts": (4, 4), "spread": 0.0},
        "classes of two sizes": {"counts": (1, 2, 1)},
        "many digits": {
            "counts": (2000, 1000, 2000), "mean_C": np.array([0.123456789]),
            "deviation_C": np.array([5.123456789]), "spread": 0.0123456789,
            "deviation": 5.123456789, "lowest": -9.87654321, "highest": 8.76543219,
        },
        "a fifth more than latents of SD": {"deviation": 6.1},
        "a fifth less": {"deviation": 4.1},
        "more than a fifth more": {"deviation": 6.2},
        "more than a fifth less": {"deviation": 4.0},
    }.items():  # fmt: skip
        screen(title, show_measured, replace(MEASURED, **changes), as_json=False)
    screen("for scripts", show_measured, MEASURED, as_json=True)


def steps(clock: Any, *seconds: float) -> Iterator[Steps]:
    """Steps of 100 samples each, at these seconds after the start."""
    yield Steps(0, 1000)
    for number, second in enumerate(seconds, start=1):
        clock.now = 100.0 + second
        yield Steps(100 * number, 1000)
