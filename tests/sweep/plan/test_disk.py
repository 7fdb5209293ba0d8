"""Predicted disk holds samples and references; a lab that fills is said once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tread_lab.config.load import load_experiment
from tread_lab.engine.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.specs import DataSpec, RunSpec, UserError, decode
from tread_lab.specs.evaluation import SamplesSpec
from tread_lab.specs.evaluation_text import decode_evaluations
from tread_lab.sweep.plan.disk import DiskNeed, disk_need, free_bytes, image_bytes
from tread_lab.sweep.trial.task import Task

Tiny = Callable[..., RunSpec]
LATENTS = {"source": "latents", "path": "x", "channels": 4, "size": 8, "classes": 1}
MODEL = {"depth": 4, "width": 16, "heads": 2}


def test_an_evaluation_of_10k_images_at_256_is_2_gb() -> None:
    found = load_experiment("s2_imagenet256")
    task = Task(decode(RunSpec, found.run), decode_evaluations(found.evaluate, found.sampler))
    need = disk_need([task])
    assert need.samples == 10_000 * 3 * 256 * 256 == 1_966_080_000
    assert need.references == 10_000 * 2048 * 4
    assert disk_need([task, task]).references == need.references
    assert disk_need([task, task]).samples == 2 * need.samples
    assert need.parts == 9 * 1024 * 3 * 256 * 256  # beside the samples until these are whole
    assert disk_need([task, task]).parts == need.parts == disk_need([task] * 3, 2).parts / 2
    assert need.total == need.checkpoints + need.samples + need.parts + need.references
    assert need.largest == need.samples


def test_features_that_are_kept_whole_lie_in_the_parts(tiny: Tiny) -> None:
    spec = tiny()
    fd, kid = decode_evaluations(["fd@3k", "kid@2k"])
    assert disk_need([Task(spec, (fd,))]).parts == 2 * 1024 * 256
    assert disk_need([Task(spec, (kid,))]).parts == 1024 * (256 + 128 * 8)
    assert disk_need([Task(spec, (fd, kid))]).parts == 1024 * (256 + 128 * 8)


def test_so_many_of_the_largest_parts_lie_on_the_disk_at_once(tiny: Tiny) -> None:
    counts = (3000, 9000, 5000)  # 2, 8 and 4 whole parts
    sets = [decode(SamplesSpec, {"metrics": ["fd"], "count": count}) for count in counts]
    tasks = [Task(tiny(seed=k), (samples,)) for k, samples in enumerate(sets)]
    found = [disk_need(tasks, at_once).parts for at_once in (1, 2, 4)]
    assert found == [8 * 1024 * 256, 12 * 1024 * 256, 14 * 1024 * 256]


def test_checkpoints_on_the_disk_are_those_kept_and_the_one_being_written(tiny: Tiny) -> None:
    spec = tiny(execution={"keep_checkpoints": 3, "keep_steps": [5, 9]})
    one = cost(spec).checkpoint_bytes
    assert disk_need([Task(spec)]) == DiskNeed(checkpoints=6 * one, largest=one)
    losses = decode_evaluations([{"heldout_loss": {"images": 8, "step": step}} for step in (5, 7)])
    assert disk_need([Task(spec, losses)]).checkpoints == 7 * one  # of steps that it needs, too
    assert disk_need([Task(spec, losses), Task(tiny(seed=1))]).largest == one
    assert disk_need([]) == DiskNeed()


def test_repas_features_of_latents_are_counted_once(tiny: Tiny, tmp_path: Path) -> None:
    np.save(tmp_path / "latents.npy", np.zeros((100, 4, 8, 8), np.float16))
    np.save(tmp_path / "labels.npy", np.zeros(100, np.int64))
    np.save(tmp_path / "heldout_latents.npy", np.zeros((10, 4, 8, 8), np.float16))
    np.save(tmp_path / "heldout_labels.npy", np.zeros(10, np.int64))
    data = {"source": "latents", "path": str(tmp_path), "channels": 4, "size": 8}
    small = {"encoder": "dinov2-small", "block": 1}
    specs = [tiny(data=data, repa=small), tiny(data=data, repa={**small, "weight": 1.0})]
    need = disk_need([*map(Task, specs), Task(tiny(data=data)), Task(tiny(repa={"block": 1}))])
    assert need.targets == 2 * 100 * 16 * 384
    other = disk_need([Task(specs[0]), Task(tiny(data=data, repa={"block": 1}))])  # dinov2-base
    assert other.targets == 2 * 100 * 16 * (384 + 768)
    assert other.total == other.checkpoints + other.targets
    absent = tiny(data={**data, "path": str(tmp_path / "absent")}, repa=small)
    assert disk_need([Task(absent)]).targets == 0
    imagenet = tiny(data={**data, "path": str(tmp_path / "absent"), "classes": 1000}, repa=small)
    assert disk_need([Task(imagenet)]).targets == 2 * 1_281_167 * 16 * 384


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (DataSpec(), 16 * 16),
        (DataSpec(channels=3, size=32), 3 * 32 * 32),
        (DataSpec(source="latents", path="x", channels=4, size=32), 3 * 256 * 256),  # decoded
    ],
)
def test_a_sample_is_counted_as_the_image_that_it_becomes(data: DataSpec, size: int) -> None:
    assert image_bytes(data) == size


OWN, INCEPTION, DINOV2 = 128 * 8, 2048 * 4, 1024 * 4
LARGE = {"data": {"size": 32}, "model": {"depth": 2, "width": 16, "heads": 2}}


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([({}, ["fd"])], 10_000 * OWN),
        ([({}, ["is fd"])], 10_000 * OWN),  # one of them compares nothing
        ([({}, ["kid"])], 10_000 * OWN),
        ([({}, ["fd", "fid"])], 10_000 * INCEPTION),  # the dearest of each set of references
        ([({}, ["fid", "fd"])], 10_000 * INCEPTION),
        ([({}, ["fd"]), ({"seed": 1}, ["fid"])], 10_000 * INCEPTION),
        ([({}, ["fid"]), ({"seed": 1}, ["fd"])], 10_000 * INCEPTION),
        ([({}, ["fid kid"])], 10_000 * (INCEPTION + OWN)),  # every network that metrics ask
        ([({}, ["fd_dinov2"])], 10_000 * DINOV2),
        ([({}, ["fd_dinov2 fid"])], 10_000 * (DINOV2 + INCEPTION)),
        ([({}, ["fid"]), (LARGE, ["fid"])], 2 * 10_000 * INCEPTION),
        ([({"data": LATENTS}, ["kid"])], 10_000 * INCEPTION),  # no network was made for them
        ([({"data": LATENTS}, ["fd_dinov2 kid"])], 10_000 * (DINOV2 + INCEPTION)),
        ([({}, ["fid r.npz"])], 150 * INCEPTION),
        ([({}, ["is r.npz"])], 0),
        ([({}, ["fid r.npz", "fid"])], 10_150 * INCEPTION),
        ([({}, [])], 0),
    ],
)
def test_features_of_references_are_those_of_each_set_of_images(
    runs: list[Any], expected: int, in_folder: Path, tiny: Tiny
) -> None:
    np.savez("r.npz", arr_0=np.zeros((150, 8, 8, 3), np.uint8))

    def spec(words: str) -> SamplesSpec:
        metrics = [word for word in words.split() if word != "r.npz"]
        by_file = {"reference": "r.npz"} if "r.npz" in words else {}
        return decode(SamplesSpec, {"metrics": metrics, "count": 100, **by_file})

    tasks = [Task(tiny(**changes), tuple(map(spec, asked))) for changes, asked in runs]
    need = disk_need(tasks)
    assert need.references == expected
    assert need.samples == sum(100 * image_bytes(t.spec.data) * len(t.evaluations) for t in tasks)
    assert need.total == need.checkpoints + need.samples + need.references


def test_one_cache_of_targets_serves_runs_of_the_same_data_tokens_and_encoder(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tread_lab.data.source.open_data", lambda data, split: range(1))
    small = {"encoder": "dinov2-small", "block": 1}
    changes: list[dict[str, Any]] = [
        {"repa": {"block": 1}},
        {"repa": {"block": 2}},
        {"repa": small},
        {"repa": {**small, "target": "decoded"}},
        {"repa": small, "model": {**MODEL, "patch": 4}},
        {"repa": small, "data": {**LATENTS, "path": "y"}},
    ]
    tasks = [Task(tiny(**{"data": LATENTS, **change})) for change in changes]
    needs = [disk_need(tasks[:n]).targets for n in range(1, 7)]
    base, one = 16 * 768 * 2, 16 * 384 * 2  # 16 tokens, or 4 of patches of 4
    assert needs == [
        base,
        base,
        *(base + n * one for n in (1, 2)),
        *(base + 2 * one + one // 4 + n * one for n in (0, 1)),
    ]


def test_each_caption_of_both_splits_and_the_empty_text_have_tokens_in_one_cache(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: dict[str, Any] = {"train": [("a", "b"), ("c",)], "heldout": [("d",)]}
    monkeypatch.setattr("tread_lab.data.source.open_data", lambda data, split: split)
    monkeypatch.setattr("tread_lab.data.captions.captions_of", texts.get)
    captions, other = {"encoder": "clip-base", "tokens": 8}, {**LATENTS, "path": "y"}
    runs = [tiny(data=LATENTS, captions=captions, seed=seed) for seed in (0, 1)]
    runs += [tiny(data=LATENTS), tiny(data=other, captions=captions)]
    needs = [disk_need([Task(run) for run in runs[:n]]).targets for n in range(1, 5)]
    one = (3 + 1 + 1 + 1) * 8 * 512 * 2
    assert needs == [one, one, one, 2 * one]
    texts.clear()
    assert disk_need([Task(runs[0])]).targets == 2 * 8 * 512 * 2

    def absent(data: DataSpec, split: str) -> None:
        raise UserError(f"{data.path}: not there")

    monkeypatch.setattr("tread_lab.data.source.open_data", absent)
    assert disk_need([Task(runs[0])]).targets == 0


def test_room_is_asked_of_the_nearest_folder_that_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    found = SimpleNamespace(total=9, used=4, free=5)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: asked.append(path) or found)  # type: ignore[func-returns-value]
    (tmp_path / "lab").mkdir()
    for folder in ("lab", "not/yet"):
        assert free_bytes(Lab(tmp_path / folder)) == 5
    assert asked == [tmp_path / "lab", tmp_path]
