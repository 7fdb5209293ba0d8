"""A full disk: noticed, and nothing partial is taken as good."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.compare import Run, check_quiet, outcome
from tests.faults.drivers import CRASHED, DONE, Place

pytestmark = pytest.mark.slow


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
    survived="one line names the cause; no partial file is used; the same command resumes",
)
def test_full_disk_is_survived(place: Place, small_disk: Path, expected: dict[str, Run]) -> None:
    for room in (0, 12_000, 40_000, 400_000):
        leave(small_disk, room)
        driver = place.sweep()
        assert driver.wait() not in (DONE, CRASHED), driver.said()
        last = driver.said().strip().splitlines()[-1]
        assert "No space left on device. Free space and run the same" in last, driver.said()
    (small_disk / "ballast").unlink()
    place.finish()
    assert outcome(place.lab) == expected
    check_quiet(place.lab)
