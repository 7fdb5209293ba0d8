"""A tracker whose package is not installed is refused with what to install."""

from __future__ import annotations

import pytest

from tread_lab.specs import UserError
from tread_lab.tracking import trackers


def test_a_tracker_names_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None if name == "tensorboardX" else 1)
    trackers.check_installed(["mlflow", "wandb"])
    with pytest.raises(UserError) as refusal:
        trackers.check_installed(["mlflow", "tensorboard"])
    assert str(refusal.value) == (
        "--tracker tensorboard: `pip install tread-lab[tensorboard]` brings what it needs"
    )
