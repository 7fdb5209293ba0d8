"""Damaged checkpoints and a full disk: noticed, and never taken as good."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.compare import Run, attempts, check_quiet, outcome
from tests.faults.drivers import CRASHED, DONE, KILLED, Place, Zygote
from tests.faults.sweeps import SMALL
from tread_lab.records.run_folder import list_checkpoints

pytestmark = pytest.mark.slow
WINDOW = "tread_lab.train.trainer:Trainer.log_window"


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(path: Path) -> None:
    """One bit of the middle is another one."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


DAMAGE = (emptied, truncated, flipped)


@pytest.fixture(scope="module")
def cut_off(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A sweep whose first run has two checkpoints and was killed."""
    place = Place(zygote, tmp_path_factory.mktemp("cut_off")).write(SMALL)
    assert place.sweep(prelude=f"die({WINDOW!r}, nth=5)").wait() == KILLED
    return place


@pytest.mark.fault(
    12,
    survived="the damage is noticed by its checksum and said; the checkpoint before it is used",
)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint(
    cut_off: Place, tmp_path: Path, expected: dict[str, Run], damage: Callable[[Path], None]
) -> None:
    place = cut_off.copy(tmp_path)
    (run,) = attempts(place.lab)
    newest, _ = list_checkpoints(place.lab.run(run).checkpoints)
    damage(newest)
    driver = place.finish()
    assert "is damaged; the one before it is used" in driver.said()
    assert outcome(place.lab) == expected


@pytest.fixture
def small_disk(place: Place) -> Iterator[Path]:
    """The lab's folder, on a file system of its own of 8 MB."""
    folder = place.lab.root
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system may be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def leave(folder: Path, room: int) -> None:
    """Fill the file system of `folder` until `room` bytes are left."""
    ballast = folder / "ballast"
    ballast.unlink(missing_ok=True)
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(free - room, 1))


@pytest.mark.task(8)
@pytest.mark.fault(
    13,
    survived="one line says that the disk is full and what to do; nothing partial is ever used;"
    " when there is room again the same command ends the sweep",
)
def test_a_full_disk(place: Place, small_disk: Path, expected: dict[str, Run]) -> None:
    for room in (0, 12_000, 40_000, 400_000):
        leave(small_disk, room)
        driver = place.sweep()
        assert driver.wait() not in (DONE, CRASHED), driver.said()
        last = driver.said().strip().splitlines()[-1]
        assert "No space left on device; make room and run the same" in last, driver.said()
    (small_disk / "ballast").unlink()
    place.finish()
    assert outcome(place.lab) == expected
    check_quiet(place.lab)
