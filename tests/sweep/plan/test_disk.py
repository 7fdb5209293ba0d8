"""Predicted disk holds samples and references; a lab that fills is said once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tread_lab.cli import main
from tread_lab.config.load import load_experiment
from tread_lab.engine.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.specs import DataSpec, RunSpec, UserError, decode
from tread_lab.specs.evaluation import SamplesSpec, decode_evaluations
from tread_lab.sweep.plan import disk
from tread_lab.sweep.plan.disk import DiskNeed, disk_need, free_bytes, image_bytes
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.trial.trial import Report
from tread_lab.terminal.disk import DiskWatch

Tiny = Callable[..., RunSpec]


def leave(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))


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


def test_the_embedded_images_are_counted_as_they_are(tiny: Tiny) -> None:
    assert image_bytes(DataSpec()) == 16 * 16
    spec = decode(SamplesSpec, {"metrics": ["fd"], "count": 1000})
    need = disk_need([Task(tiny(), (spec,))])
    assert (need.samples, need.references) == (256_000, 10_000 * 128 * 8)
    assert disk_need([Task(tiny())]).samples == 0


# With the rates of a device that is not here nothing is measured.
PLAN = ["sweep", "s.yaml", "--plan", "--root", "lab", "--device-rates", "H200"]


def test_the_plan_shows_the_disk_and_the_room_beside_it(
    in_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (in_folder / "s.yaml").write_text("experiment: tiny\naxes: {route: ['2->8']}\n")
    leave(monkeypatch, 3_000_000_000)
    assert main(PLAN) == 0
    found = capsys.readouterr()
    text = " ".join((found.out + found.err).split())
    assert "of samples" in text and "3 GB free in" in text and "may not suffice" not in text
    leave(monkeypatch, 100_000)
    assert main(PLAN) == 0
    found = capsys.readouterr()
    assert "the disk may not suffice" in " ".join((found.out + found.err).split())


def test_a_disk_that_fills_is_said_once_not_for_every_run(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    passed: list[Report] = []
    monkeypatch.setattr("tread_lab.terminal.disk.say", said.append)
    monkeypatch.setattr("tread_lab.terminal.disk.EVERY", 0.0)
    watch = DiskWatch(lab, [Task(tiny())], passed.append)
    report = Report("run", "train", 1, 2, 0.5)
    leave(monkeypatch, 10**12)
    watch(report)
    assert said == []
    leave(monkeypatch, 1000)
    for _ in range(3):
        watch(report)
    assert len(passed) == 4 and len(said) == 1
    assert said[0].startswith("1 kB are left on the disk of") and "tread-lab gc" in said[0]


def test_steps_that_evaluations_need_are_kept_too(tiny: Tiny) -> None:
    spec = tiny(execution={"keep_checkpoints": 2, "keep_steps": [5]})
    losses = decode_evaluations([{"heldout_loss": {"images": 8, "step": step}} for step in (5, 9)])
    one = cost(spec).checkpoint_bytes
    assert disk_need([Task(spec, losses)]).checkpoints == (2 + 2 + 1) * one
    assert disk_need([Task(spec, losses), Task(tiny(seed=1))]).largest == one


def test_each_data_set_has_references_of_its_dearest_features(tiny: Tiny) -> None:
    own, inception = (
        decode(SamplesSpec, {"metrics": [metric], "count": 100}) for metric in ("fd", "fid")
    )
    for sets in ((own, inception), (inception, own)):
        assert disk_need([Task(tiny(), sets)]).references == 10_000 * 2048 * 4
        tasks = [Task(tiny(seed=seed), (spec,)) for seed, spec in enumerate(sets)]
        assert disk_need(tasks).references == 10_000 * 2048 * 4
    assert disk_need([Task(tiny(), (own,))]).references == 10_000 * 128 * 8
    need = DiskNeed(checkpoints=1, samples=20, references=300, targets=4000, largest=50_000)
    assert need.total == 4321


def test_features_of_as_many_references_are_kept_as_there_are(tiny: Tiny, tmp_path: Path) -> None:
    np.savez(tmp_path / "r.npz", arr_0=np.zeros((150, 8, 8, 3), np.uint8))
    by_file = {"count": 100, "reference": str(tmp_path / "r.npz")}
    fid, score = (decode(SamplesSpec, {**by_file, "metrics": [m]}) for m in ("fid", "is"))
    assert disk_need([Task(tiny(), (fid,))]).references == 150 * 2048 * 4
    assert disk_need([Task(tiny(), (score,))]).references == 0
    heldout = decode(SamplesSpec, {"count": 100, "metrics": ["fid"]})
    assert disk_need([Task(tiny(), (fid, heldout))]).references == 10_150 * 2048 * 4


def test_a_latent_is_counted_as_the_colour_image_that_it_becomes() -> None:
    latents = DataSpec(source="latents", path="x", channels=4, size=32)
    assert image_bytes(latents) == 3 * 256 * 256
    assert image_bytes(DataSpec(channels=3, size=32)) == 3 * 32 * 32


def test_the_room_is_that_of_the_folder_where_the_lab_will_be(tmp_path: Path) -> None:
    assert free_bytes(Lab(tmp_path / "not" / "yet")) > 0


def test_dinov2_takes_features_of_its_own_size(tiny: Tiny) -> None:
    dinov2, both = (
        decode(SamplesSpec, {"metrics": metrics, "count": 100})
        for metrics in (["fd_dinov2"], ["fd_dinov2", "fid"])
    )
    assert disk_need([Task(tiny(), (dinov2,))]).references == 10_000 * 1024 * 4
    assert disk_need([Task(tiny(), (both,))]).references == 10_000 * (1024 + 2048) * 4


def test_no_run_needs_no_disk(tiny: Tiny) -> None:
    assert disk_need([]) == DiskNeed() == DiskNeed(0, 0, 0, 0, 0, 0)
    one, other = tiny(), tiny(seed=1)
    both = disk_need([Task(one), Task(other)]).checkpoints
    assert both == 2 * disk_need([Task(one)]).checkpoints


def test_each_data_set_has_references_of_its_own(tiny: Tiny) -> None:
    fid = decode(SamplesSpec, {"metrics": ["fid"], "count": 100})
    large = tiny(data={"size": 32}, model={"depth": 2, "width": 16, "heads": 2})
    tasks = [Task(tiny(), (fid,)), Task(large, (fid,))]
    assert disk_need(tasks).references == 2 * 10_000 * 2048 * 4


def test_a_metric_that_compares_nothing_keeps_no_features_of_references(tiny: Tiny) -> None:
    spec = decode(SamplesSpec, {"metrics": ["is", "fd"], "count": 100})
    assert disk_need([Task(tiny(), (spec,))]).references == 10_000 * 128 * 8


LATENTS = {"source": "latents", "path": "x", "channels": 4, "size": 8, "classes": 1}
MODEL = {"depth": 4, "width": 16, "heads": 2}


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


@pytest.mark.parametrize(
    ("metrics", "images", "latents"),
    [
        ({"kid"}, 128 * 8, 2048 * 4),
        ({"fd"}, 128 * 8, 2048 * 4),
        ({"fid"}, 2048 * 4, 2048 * 4),
        ({"fid", "kid"}, 2048 * 4 + 128 * 8, 2048 * 4),
        ({"fd_dinov2"}, 1024 * 4, 1024 * 4),
        ({"fd_dinov2", "kid"}, 1024 * 4 + 128 * 8, (1024 + 2048) * 4),
        ({"fd_dinov2", "fid"}, (1024 + 2048) * 4, (1024 + 2048) * 4),
    ],
)
def test_features_of_an_image_are_of_each_network_that_metrics_ask(
    metrics: set[str], images: int, latents: int
) -> None:
    stored = DataSpec(source="latents", path="x", channels=4, size=8)
    pictures = DataSpec(source="images", path="x", channels=3, size=32)
    found = [disk._feature_bytes(data, metrics) for data in (DataSpec(), stored, pictures)]
    assert found == [images, latents, latents]  # no network was made for files of pictures


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
