"""A run is of its data: the same data elsewhere are the same run, other data another one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.made_data import normal, write_arrays
from tests.tasks.conftest import DONE, SMALL, Command, attempts
from tread_lab.records.lab import Lab

LATENTS = "data={source: latents, path: %s, channels: 4, size: 8, classes: 7}"
PROBE = "{heldout_loss: {images: 2, levels: 2}}"


@pytest.mark.task(54)
@pytest.mark.fault(17, survived="no run starts; other data are another run")
def test_other_data_are_another_run_and_changed_data_are_noticed(
    run_command: Command, lab: Lab
) -> None:
    def train(path: str, *words: str) -> int:
        done = run_command(f"train {SMALL}", LATENTS % path, *words)
        return done.code if done.code == DONE else len(done.mistake)

    write_arrays(Path("one"), normal() / 2)
    write_arrays(Path("other"), normal(seed=1) / 2)
    assert train("one", "evaluate=[]") == DONE
    ((run, _),) = attempts(lab).items()
    shutil.copytree("one", "moved")
    assert train("moved", "evaluate=[]") == DONE and attempts(lab) == {run: 1}
    assert train("other", "evaluate=[]") == DONE
    assert len(attempts(lab)) == 2 and attempts(lab)[run] == 1
    for folder in ("one", "moved"):
        write_arrays(Path(folder), normal(seed=2) / 2)
    changed = run_command(f"evaluate {run}", PROBE, "--device", "cpu")
    assert "must have the digest" in changed.mistake
    assert not [*lab.run(run).evaluations()]
