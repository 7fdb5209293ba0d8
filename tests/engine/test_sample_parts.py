"""An evaluation that is killed goes on after its last part of images, with equal results."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.engine.runs import CPU, lab_with_a_run, small_run
from tread_lab.engine import drawing, sample_parts
from tread_lab.engine import evaluate as evaluation
from tread_lab.engine.checkpoint import load_latest, save
from tread_lab.engine.evaluate import evaluate, measuring
from tread_lab.engine.probes import finished
from tread_lab.engine.sample_parts import PART, SampleParts
from tread_lab.records.durable import read_json
from tread_lab.records.run_folder import RunFolder
from tread_lab.specs import SamplesSpec, decode
from tread_lab.specs.errors import Unavailable

COUNT, BATCHES = 1_100, 18
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
    """The image at which every call of the sampler begins; a batch takes a minute, else nothing."""
    begun: list[int] = []
    minutes, original = [0], drawing.generate

    def watched(*arguments: Any, start: int, **options: Any) -> Iterator[Any]:
        begun.append(start)
        for batch in original(*arguments, start=start, **options):
            minutes[0] += 1
            yield batch

    monkeypatch.setattr(drawing, "generate", watched)
    clock = SimpleNamespace(perf_counter=lambda: 60.0 * minutes[0])
    for module in (evaluation, sample_parts):
        monkeypatch.setattr(module, "time", clock)
    return begun


def test_an_evaluation_that_is_closed_keeps_its_images_and_goes_on_with_equal_results(
    folder: RunFolder, whole: tuple[dict[str, float], bytes], starts: list[int]
) -> None:
    """So it yields within seconds to whoever stops a run, however many images it makes."""
    shutil.rmtree(place := folder.evaluation(SPEC).path, ignore_errors=True)
    batches = measuring(folder, SPEC, CPU, cache=folder.cache)
    next(batches)
    next(batches)
    batches.close()
    assert not (place / "metrics.json").exists()
    assert evaluate(folder, SPEC, CPU, cache=folder.cache) == whole[0]
    assert (place / "samples.npz").read_bytes() == whole[1]
    assert starts == [0, 128]
    with Image.open(place / "grid.png") as picture, np.load(place / "samples.npz") as arrays:
        grid, images = np.asarray(picture), arrays["arr_0"][:64, :, :, 0]
    assert np.array_equal(grid, grid[1::3, 1::3].repeat(3, axis=0).repeat(3, axis=1))
    rows, ground = grid[4::3, 4::3].reshape(8, 17, 8, 17).transpose(0, 2, 1, 3), grid[1::3, 1::3]
    assert np.array_equal(rows[:, :, :16, :16].reshape(64, 16, 16), images)
    assert (ground[::17] == 255).all() and (ground[:, ::17] == 255).all()
    assert read_json(place / "metrics.json")["seconds"] == 60 * BATCHES


def interrupted(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Leave the parts of an evaluation that stopped after 1,088 images."""
    shutil.rmtree(folder.evaluation(SPEC).path, ignore_errors=True)
    original = drawing.generate

    def cut(*arguments: Any, **options: Any) -> Iterator[Any]:
        for k, batch in enumerate(original(*arguments, **options)):
            if 64 * k >= 1_088:
                raise KeyboardInterrupt
            yield batch

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(drawing, "generate", cut)
        evaluate(folder, SPEC, CPU, cache=folder.cache)
    return folder.evaluation(SPEC).path / "parts"


def test_an_evaluation_that_is_cut_off_goes_on_after_its_last_part_with_equal_results(
    folder: RunFolder,
    whole: tuple[dict[str, float], bytes],
    starts: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = interrupted(folder, monkeypatch)
    assert not (parts.parent / "metrics.json").exists()
    assert evaluate(folder, SPEC, CPU, cache=folder.cache) == whole[0]
    assert (parts.parent / "samples.npz").read_bytes() == whole[1]
    assert starts == [0, PART]
    assert read_json(parts.parent / "metrics.json")["seconds"] == 60 * BATCHES
    assert not parts.exists()


def flip(path: Path, place: int = -100) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 64
    path.write_bytes(bytes(content))


DAMAGE: dict[str, Callable[[Path], None]] = {
    "images are changed": lambda parts: flip(parts / "images.npy", 300),
    "images are cut short": lambda parts: os.truncate(parts / "images.npy", 5_000),
    "labels are lost": lambda parts: (parts / "labels.npy").unlink(),
    "marks are lost": lambda parts: (parts / "whole.u8").unlink(),
    "the sums are changed": lambda parts: flip(parts / "sums.safetensors"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_parts_are_made_again(
    folder: RunFolder,
    whole: tuple[dict[str, float], bytes],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    path = interrupted(folder, monkeypatch)
    fingerprint = read_json(path / "made_with.json")
    assert SampleParts(path.parent, fingerprint, COUNT).resume() != {}
    DAMAGE[name](path)
    parts = SampleParts(path.parent, fingerprint, COUNT)
    assert parts.resume() == {} and parts.count == 0
    assert not parts.folder.exists()


def test_parts_made_otherwise_do_not_count(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = interrupted(folder, monkeypatch)
    fingerprint = read_json(path / "made_with.json")
    for other in ({"code": "other"}, {**fingerprint, "step None": "5"}):
        facts = SampleParts(path.parent, other, COUNT)
        assert facts.resume() == {} and facts.count == 0


def test_images_of_two_weights_of_one_step_never_mix(
    folder: RunFolder, whole: tuple[dict[str, float], bytes], starts: list[int], tmp_path: Path
) -> None:
    """An evaluation is closed, goes on, and its run's weights are replaced under it."""
    run = RunFolder(shutil.copytree(folder.path, tmp_path / "run"))

    def begun() -> Any:
        batches = measuring(run, SPEC, CPU, cache=folder.cache)
        next(batches)
        return batches

    begun().close()
    older = begun()
    last = load_latest(run.checkpoints)
    assert last is not None
    save(run.checkpoints, replace(last, tensors={n: -x for n, x in last.tensors.items()}), keep=1)
    begun().close()
    with pytest.raises(Unavailable, match="with other weights or code"):
        older.close()
    begun().close()
    assert starts == [0, 64, 0, 64]


def test_of_two_processes_that_make_the_same_images_the_second_takes_the_result_of_the_first(
    folder: RunFolder, whole: tuple[dict[str, float], bytes]
) -> None:
    shutil.rmtree(folder.evaluation(SPEC).path, ignore_errors=True)
    second = measuring(folder, SPEC, CPU, cache=folder.cache)
    for _ in range(PART // 64 + 1):  # one part is written
        next(second)
    assert evaluate(folder, SPEC, CPU, cache=folder.cache) == finished(second) == whole[0]


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


def test_images_come_back_in_order(tmp_path: Path) -> None:
    parts = SampleParts(tmp_path, {"code": "this"}, 3000)
    batches = [torch.full((600, 1, 2, 2), k, dtype=torch.uint8) for k in range(5)]
    for images in batches:
        parts.add(images, torch.zeros(600, dtype=torch.long), {"x/pool": images[:, 0, 0].float()})
        if parts.full:
            parts.close({"x/count": torch.tensor(parts.count)})
    joined = {key: torch.cat([part[key] for part in parts.all()]) for key in ("images", "x/pool")}
    assert torch.equal(joined["images"], torch.cat(batches))
    assert torch.equal(joined["x/pool"], torch.cat(batches)[:, 0, 0].float())
    again = SampleParts(tmp_path, {"code": "this"}, 3000)
    assert again.resume() == {"x/count": torch.tensor(2400)} and again.count == 2400
