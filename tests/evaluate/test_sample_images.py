"""An evaluation that is killed goes on after its last batch of images, with equal results."""

from __future__ import annotations

import io
import shutil
import time
import zipfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.train.runs import CPU, evaluate, lab_with_a_run, small_run
from tread_lab.config import SamplesSpec, decode
from tread_lab.data.arrays import Parts
from tread_lab.evaluate import drawing
from tread_lab.evaluate.measuring import measuring
from tread_lab.records.durable import DiskFull, read_json, write_json
from tread_lab.records.run_folder import RunFolder

COUNT, CUT = 300, 128  # five batches of 64, the last one short; cut off after two
SPEC = decode(
    SamplesSpec,
    {"metrics": ["fd"], "count": COUNT, "sampler": {"steps": 1, "sigma_max": 10}},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A trained run in a lab whose cache holds the references."""
    pytest.importorskip("torch_fidelity")
    return lab_with_a_run(tmp_path_factory.mktemp("lab")).run_of(small_run())


@pytest.fixture(scope="module")
def whole(folder: RunFolder) -> tuple[dict[str, float], bytes]:
    """Metrics and images of an evaluation that nothing interrupts."""
    metrics = evaluate(folder, SPEC, CPU, cache=folder.cache)
    place = folder.evaluation(SPEC).path
    images = (place / "samples.npz").read_bytes()
    assert not (place / "parts").exists()
    shutil.rmtree(place)
    return metrics, images


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The image at which every batch that is drawn begins."""
    begun: list[int] = []
    original = drawing.generate

    def watched(*arguments: Any, start: int, **options: Any) -> Iterator[Any]:
        begun.append(start)
        return original(*arguments, start=start, **options)

    monkeypatch.setattr(drawing, "generate", watched)
    return begun


def assert_goes_on(
    folder: RunFolder, batches: Generator[Any, Any, Any], whole: tuple[dict[str, float], bytes]
) -> None:
    """Close a measurement; another one ends with the results of one that nobody disturbed."""
    place = folder.evaluation(SPEC).path
    batches.close()
    assert not (place / "metrics.json").exists()
    assert evaluate(folder, SPEC, CPU, cache=folder.cache) == whole[0]
    assert (place / "samples.npz").read_bytes() == whole[1]


def interrupted(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Leave the images of an evaluation that stopped within its third batch."""
    shutil.rmtree(folder.evaluation(SPEC).path, ignore_errors=True)
    original = drawing.generate

    def cut(*arguments: Any, start: int, **options: Any) -> Iterator[Any]:
        if start >= CUT:
            raise KeyboardInterrupt
        return original(*arguments, start=start, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(drawing, "generate", cut)
        evaluate(folder, SPEC, CPU, cache=folder.cache)
    return folder.evaluation(SPEC).path / "parts"


def test_killed_evaluation_resumes_after_its_last_batch(
    folder: RunFolder,
    whole: tuple[dict[str, float], bytes],
    starts: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cut off again while its images are scored, it draws none anew."""
    parts = interrupted(folder, monkeypatch)
    batches = measuring(folder, SPEC, CPU, cache=folder.cache)
    for _ in range(5):  # three that are drawn, two that are scored
        next(batches)
    assert_goes_on(folder, batches, whole)
    assert starts == [0, 64, 128, 192, 256]
    assert not parts.exists()


DAMAGE: dict[str, tuple[Callable[[Path], None], list[int]]] = {
    "a batch is lost": (lambda parts: (parts / "00000064.npz").unlink(), [64]),
    "other code made them": (lambda parts: made(parts, code="other"), [0, 64]),
    "other weights made them": (lambda parts: made(parts, **{"step None": "5"}), [0, 64]),
}


def made(parts: Path, **otherwise: str) -> None:
    path = parts / "made_with.json"
    write_json(path, {**read_json(path), **otherwise})


@pytest.mark.parametrize("name", DAMAGE)
def test_lost_images_are_drawn_again(
    folder: RunFolder,
    whole: tuple[dict[str, float], bytes],
    monkeypatch: pytest.MonkeyPatch,
    starts: list[int],
    name: str,
) -> None:
    path = interrupted(folder, monkeypatch)
    damage, again = DAMAGE[name]
    damage(path)
    starts.clear()
    assert evaluate(folder, SPEC, CPU, cache=folder.cache) == whole[0]
    assert (path.parent / "samples.npz").read_bytes() == whole[1]
    assert starts == [*again, 128, 192, 256] and not path.exists()


def test_samples_are_what_adms_evaluator_takes(whole: tuple[dict[str, float], bytes]) -> None:
    """It reads the images by their header, of a version, an order and a type that it knows."""
    with np.load(file := io.BytesIO(whole[1])) as arrays:
        assert set(arrays) == {"arr_0", "arr_1"}
        images, labels = arrays["arr_0"], arrays["arr_1"]
    assert (labels.shape, labels.dtype, set(labels)) == ((COUNT,), np.int64, set(range(10)))
    with zipfile.ZipFile(file) as archive, archive.open("arr_0.npy") as member:
        assert np.lib.format.read_magic(member) == (1, 0)
        header = np.lib.format.read_array_header_1_0(member)
        assert header == ((COUNT, 16, 16, 1), False, np.uint8)
        assert member.read(64 * 16 * 16) == images[:64].tobytes()


def test_padded_batch_equals_a_short_one(
    folder: RunFolder, whole: tuple[dict[str, float], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where blocks are compiled, which is only said here, every batch has one size."""
    drawn: list[int] = []
    original = drawing.pixels

    def watched(samples: Any, x_BCHW: Any) -> Any:
        drawn.append(len(x_BCHW))
        return original(samples, x_BCHW)

    shutil.rmtree(folder.evaluation(SPEC).path, ignore_errors=True)
    monkeypatch.setattr(drawing, "pixels", watched)
    monkeypatch.setattr(drawing, "arithmetic", lambda *run: "compiled")
    metrics = evaluate(folder, SPEC, CPU, cache=folder.cache)
    place = folder.evaluation(SPEC).path
    assert (metrics, (place / "samples.npz").read_bytes()) == whole
    assert drawn == [64] * 5


def test_writer_keeps_order_and_raises_at_the_next_batch(tmp_path: Path) -> None:
    class Full(Parts):
        def write(self, rows: range, arrays: Any) -> None:
            time.sleep(0.05 * (rows.start == 0))  # a slow file comes first all the same
            if rows.start == 4:
                raise DiskFull("no room")
            super().write(rows, arrays)

    parts, images_BCHW = Full(tmp_path, {}, 8, 2), torch.zeros(2, 1, 4, 4)
    parts.begin()
    batches = parts.open_batches()
    with pytest.raises(DiskFull, match="no room"), drawing.Writer(parts) as writer:
        for rows in batches:
            writer.store(rows, images_BCHW + rows.start, torch.arange(2))
    assert parts.open_batches() == batches[2:]
    with drawing.Writer(Parts(tmp_path, {}, 8, 2)) as writer:
        for rows in batches[2:]:
            writer.store(rows, images_BCHW + rows.start, torch.arange(2))
        writer.wait()
    assert [int(part["images"].flat[0]) for part in parts.read()] == [0, 2, 4, 6]
