"""A lab that 0.1.0 made opens, resumes and gives the numbers that 0.1.0 gave, or says what to do.

`lab-0.1.0.tar.gz` holds a sweep of six runs as 0.1.0 left it after Ctrl-C: five are completed,
without their checkpoints, and the last is interrupted at step 16 of 30. It holds numbers and one
small network's weights, no images; its licence is this repository's. The numbers below are those
that 0.1.0 showed for the same sweep when nobody stopped it.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from tread_lab.cli import main
from tread_lab.frames import trials_frame
from tread_lab.records import locks
from tread_lab.records.lab import Lab

LAST = "c8b6b8466770f139"  # the signature of the interrupted run
COLUMNS = ["heldout/loss", "gap/train", "gap/heldout", "gap/heldout:low", "gap/heldout:high"]
SHOWN = {
    "3826f4e6fbc65e93": (0.8320188049692661, *[None] * 4),
    "6e0c48ccc0f7bf3b": (0.8157090013846755, *[None] * 4),
    "bf7d125bc48abdd9": (
        0.8376807607710361,
        0.005040245829,
        0.005661955802,
        0.002206626536,
        0.009117285067,
    ),
    "7ce6f0a20a654323": (
        0.8357960998546332,
        0.009049216984,
        0.003777294885,
        0.002273171511,
        0.005281418260,
    ),
    "3d323899e177bce3": (
        0.8220955815631896,
        0.012855123729,
        0.006386580178,
        0.001801429471,
        0.010971730886,
    ),
    LAST: (0.8177234390750527, 0.012156181969, 0.002014437690, 0.000115687211, 0.003913188170),
}
SWEEP = ["sweep", "small.yaml", "--executor", "inline", "--no-mlflow", "--device", "cpu"]


# Python 3.11.4 and newer ask for a filter; before, there is none.
SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


@pytest.fixture
def old_lab(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The lab of 0.1.0 in the current folder, beside its sweep file."""
    monkeypatch.setattr(locks, "WATCHED", 0.2)  # what ran on another machine is watched so long
    with tarfile.open(Path(__file__).with_name("lab-0.1.0.tar.gz")) as archive:
        archive.extractall(in_folder, **SAFELY)
    return Lab(in_folder / "lab")


def numbers(lab: Lab) -> dict[str, list[float]]:
    frame = trials_frame(lab, "small").set_index("run")
    return {
        str(run): [float(value) for value in row]
        for run, row in zip(frame.index, frame[COLUMNS].to_numpy())
    }


def expected(run: str) -> list[float]:
    return [float("nan") if value is None else value for value in SHOWN[run]]


def test_it_opens_with_the_numbers_it_had(old_lab: Lab) -> None:
    found = numbers(old_lab)
    assert list(found) == list(SHOWN)
    for run in set(SHOWN) - {LAST}:
        assert found[run] == pytest.approx(expected(run), rel=1e-9, nan_ok=True)
    assert old_lab.run(LAST).state() == "interrupted"


def test_its_sweep_is_refused_in_one_line_that_says_what_to_do(
    old_lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(SWEEP) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("tread-lab: code differs: ") and "--allow-mixed" in line
    assert old_lab.run(LAST).state() == "interrupted"


def test_its_interrupted_run_ends_as_if_nobody_had_stopped_it(
    old_lab: Lab, no_figures: None
) -> None:
    assert main([*SWEEP, "--allow-mixed"]) == 0
    assert sum(1 for _ in (old_lab.root / "runs").iterdir()) == 6
    for run, values in numbers(old_lab).items():
        assert values == pytest.approx(expected(run), rel=1e-4, abs=1e-5, nan_ok=True)
    assert old_lab.run(LAST).entries()[0].step == 5  # its log goes on where it was
    assert main([*SWEEP, "--allow-mixed"]) == 0
    assert [attempt.ended for attempt in old_lab.run(LAST).attempts.read()] == [
        "interrupted",
        "completed",
    ]
