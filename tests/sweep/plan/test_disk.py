"""Predicted disk holds samples and references; a lab that fills is said once."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.sweep.plans import tiny
from tread_lab.engine.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.specs import DataSpec, UserError, decode
from tread_lab.specs.evaluation import SamplesSpec
from tread_lab.specs.metrics import METRICS
from tread_lab.sweep.plan.disk import disk_need, free_bytes, largest_file
from tread_lab.sweep.task import Task

LATENTS = {"source": "latents", "path": "x", "channels": 4, "size": 8, "classes": 1}
MODEL = {"depth": 4, "width": 16, "heads": 2}


OWN, INCEPTION, DINOV2 = 128 * 8, 2048 * 4, 1024 * 4
REFERENCES, TARGETS = "features of references", "encoders' features"
LARGE = {"data": {"size": 32}, "model": {"depth": 2, "width": 16, "heads": 2}}


@pytest.mark.parametrize(
    ("field", "runs", "expected"),
    [
        ("samples", [({}, ["fd", "kid"])], 2 * 100 * 16 * 16),
        ("samples", [({"data": {"channels": 3, "size": 32}}, ["fd"])], 100 * 3 * 32 * 32),
        ("samples", [({"data": LATENTS}, ["kid"])], 100 * 3 * 64 * 64),  # decoded
        # The images of a run under way, the largest of those at once.
        ("samples under way", [({}, ["fd 3000", "kid 2000"])], 3000 * 256),
        ("samples under way", [({"seed": k}, [f"fd {k}000"]) for k in (3, 9, 5)], 14_000 * 256),
        # Of each set of references, the features of every network that the metrics ask.
        (REFERENCES, [({}, ["fd"])], 10_000 * OWN),
        (REFERENCES, [({}, ["is fd"])], 10_000 * OWN),  # one of them compares nothing
        (REFERENCES, [({}, ["kid"])], 10_000 * OWN),
        (REFERENCES, [({}, ["fd", "fid"])], 10_000 * INCEPTION),  # the dearest
        (REFERENCES, [({}, ["fid"]), ({"seed": 1}, ["fd"])], 10_000 * INCEPTION),
        (REFERENCES, [({}, ["fid kid"])], 10_000 * (INCEPTION + OWN)),
        (REFERENCES, [({}, ["fd_dinov2 fid"])], 10_000 * (DINOV2 + INCEPTION)),
        (REFERENCES, [({}, ["fid"]), (LARGE, ["fid"])], 2 * 10_000 * INCEPTION),
        # No network was made for latents.
        (REFERENCES, [({"data": LATENTS}, ["kid"])], 10_000 * INCEPTION),
        (REFERENCES, [({}, ["fid r.npz"])], 150 * INCEPTION),
        (REFERENCES, [({}, ["is r.npz"])], 0),
        (REFERENCES, [({}, ["fid r.npz", "fid"])], 10_150 * INCEPTION),
    ],
)
def test_samples_those_under_way_and_features_of_references(
    field: str, runs: list[Any], expected: int, in_folder: Path
) -> None:
    """Of 100 images where none is said; two tasks are carried out at the same time."""
    np.savez("r.npz", arr_0=np.zeros((150, 8, 8, 3), np.uint8))

    def spec(words: str) -> SamplesSpec:
        metrics = [word for word in words.split() if word in METRICS]
        count = next((int(word) for word in words.split() if word.isdecimal()), 100)
        by_file = {"reference": "r.npz"} if "r.npz" in words else {}
        return decode(SamplesSpec, {"metrics": metrics, "count": count, **by_file})

    tasks = [Task(tiny(**changes), tuple(map(spec, asked))) for changes, asked in runs]
    assert disk_need(tasks, at_once=2).get(field, 0) == expected


def test_the_largest_file_is_a_checkpoint_or_a_set_of_samples() -> None:
    one = cost(tiny()).checkpoint_bytes
    for count in (100, 100_000):
        samples = decode(SamplesSpec, {"metrics": ["fd"], "count": count})
        largest = largest_file([Task(tiny(), (samples,)), Task(tiny(seed=1))])
        assert largest == max(one, count * 16 * 16)
    assert disk_need([]) == {} and largest_file([]) == 0


def targets(tasks: list[Task]) -> int:
    return disk_need(tasks).get(TARGETS, 0)


def test_one_cache_of_targets_serves_runs_of_the_same_data_tokens_and_encoder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def opened(data: DataSpec, split: str) -> Any:
        assert split == "train"
        if data.path == "absent":
            raise UserError("not there")
        return range(1)

    monkeypatch.setattr("tread_lab.data.source.open_data", opened)
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
    needs = [targets(tasks[:n]) for n in range(1, 7)]
    base, one = 16 * 768 * 2, 16 * 384 * 2  # 16 tokens, or 4 of patches of 4
    assert needs == [
        base,
        base,
        *(base + n * one for n in (1, 2)),
        *(base + 2 * one + one // 4 + n * one for n in (0, 1)),
    ]
    need = disk_need([Task(tiny(data=LATENTS)), Task(tiny(repa={"block": 1})), tasks[0]])
    assert need[TARGETS] == base and list(need) == ["checkpoints", TARGETS]
    for classes, images in ((1, 0), (1000, 1_281_167)):  # of data that cannot be read yet
        absent = {**LATENTS, "path": "absent", "classes": classes}
        assert targets([Task(tiny(data=absent, repa=small))]) == images * one


def test_each_caption_of_both_splits_and_the_empty_text_have_tokens_in_one_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts: dict[str, Any] = {"train": [("a", "b"), ("c",)], "heldout": [("d",)]}
    monkeypatch.setattr("tread_lab.data.source.open_data", lambda data, split: split)
    monkeypatch.setattr("tread_lab.data.captions.captions_of", texts.get)
    captions, other = {"encoder": "clip-base", "tokens": 8}, {**LATENTS, "path": "y"}
    runs = [tiny(data=LATENTS, captions=captions, seed=seed) for seed in (0, 1)]
    runs += [tiny(data=LATENTS), tiny(data=other, captions=captions)]
    needs = [targets([Task(run) for run in runs[:n]]) for n in range(1, 5)]
    one = (3 + 1 + 1 + 1) * 8 * 512 * 2
    assert needs == [one, one, one, 2 * one]
    texts.clear()
    assert targets([Task(runs[0])]) == 2 * 8 * 512 * 2

    def absent(data: DataSpec, split: str) -> None:
        raise UserError(f"{data.path}: not there")

    monkeypatch.setattr("tread_lab.data.source.open_data", absent)
    assert targets([Task(runs[0])]) == 0


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
