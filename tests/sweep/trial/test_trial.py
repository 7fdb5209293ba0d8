"""What a run's record says of its speed."""

from __future__ import annotations

from tread_lab.records.log import Entry
from tread_lab.sweep.trial.trial import median_step_seconds


def entries(*speeds: float) -> list[Entry]:
    found = [Entry(2 * k, 20 * k, "train/images_per_s", s, 0.0) for k, s in enumerate(speeds)]
    return [*found, Entry(99, 20, "train/loss", 0.5, 0.0)]


def test_the_step_time_is_a_median_without_the_warm_up() -> None:
    assert median_step_seconds(entries(1.0, 320.0, 160.0, 320.0), 32) == 0.1


def test_one_entry_tells_no_step_time() -> None:
    assert median_step_seconds(entries(320.0), 32) is None
