"""Verifying: each fault of a data set is one line, and all of them are named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.conftest import LATENTS, MEMBERS, npy, write_tar
from tread_lab.data.latents import write_manifest
from tread_lab.prepare.verify import faults


@pytest.fixture
def described(packed: Path) -> Path:
    """Packed arrays with mirrored ones, captions and a manifest."""
    np.save(packed / "latents_flip.npy", LATENTS)
    (packed / "captions.jsonl").write_text('{"captions": ["a"]}\n' * 40)
    facts = {"made_with": {"scale": 0.93, "classes": 7}}
    names = ("latents.npy", "latents_flip.npy", "labels.npy", "captions.jsonl")
    write_manifest(packed, facts, names)
    return packed


def test_a_whole_data_set_has_no_faults(described: Path, shards: Path) -> None:
    os.utime(described / "latents.npy", ns=(1, 1))  # a copy has a time of its own
    assert list(faults("latents", described)) == []
    assert list(faults("shards", shards, classes=7)) == []
    twice = [
        (name, npy(LATENTS[k // 2] * 2) if k % 2 else content)
        for k, (name, content) in enumerate(MEMBERS)
    ]
    (line,) = faults("shards", write_tar(described / "twice.tar", twice))
    assert line.startswith("the deviation is 2, so the network would see 2; latents of an")


def test_classes_without_a_sample_are_named(described: Path) -> None:
    (line,) = faults("latents", described, classes=1000)
    assert line.startswith("classes without a sample: 7, 8, 9, 10, 11, ... (993 of 1000); ")
    (described / "labels.npy").unlink()
    np.save(described / "labels.npy", np.where(np.arange(40) % 7 == 3, 0, np.arange(40) % 7))
    assert "classes without a sample: 3; their images are drawn and never trained" in list(
        faults("latents", described)
    )


NAN = [((3, 0, 0, 0), np.nan), ((8, 1, 1, 1), np.inf)]


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("latents", NAN, "2 samples (3, 8): values are not finite"),
        ("latents_flip", NAN, "2 samples (3, 8) (mirrored): values are not finite"),
        ("labels", [(5, 7)], "sample 5: the label is 7, and must be 0..6"),
        (
            "labels",
            [(slice(0, 6), -1)],
            "6 samples (0, 1, 2, 3, 4, ...): the label is -1, and must",
        ),
        ("labels", [(slice(0, None), 1)], "classes without a sample: 0, 2, 3, 4, 5, ... (6 of 7)"),
        ("latents", [(..., 1.0)], "all values are the same"),
        (
            "latents",
            [(..., 0.0), (0, 0.5)],
            "see 0.0726; latents of an autoencoder with the factor 0.93 should have 1 then",
        ),
    ],
)
def test_each_fault_is_one_line(
    described: Path, name: str, values: list[tuple[Any, float]], said: str
) -> None:
    array = np.load(described / f"{name}.npy")
    for place, value in values:
        array[place] = value
    np.save(described / f"{name}.npy", array)
    checksum, line = faults("latents", described)
    assert f"{name}.npy: its checksum differs" in checksum and said in line


@pytest.mark.parametrize(
    ("mean", "deviation", "expected"),
    [
        ([0.0, 0.0], [1.0, 1.0], "holds 2 means and 2 deviations, and the data have 4 channels"),
        ([0.0] * 4, [1.0, 0.0, 1.0, 1.0], "says that channel 1 deviates by 0"),
        ([0.0, 3.0, 0.0, 0.0], [1.0] * 4, "and they say 3 and 1; `tread-lab data stats --write`"),
    ],
)
def test_wrong_statistics_are_a_fault_though_nothing_asks_for_them(
    mean: list[float], deviation: list[float], expected: str, described: Path
) -> None:
    stored = np.load(described / "latents.npy").astype(np.float64)
    units = stored.std(axis=(0, 2, 3))
    told = {"mean": mean, "deviation": (units[: len(deviation)] * deviation).tolist()}
    (described / "statistics.json").write_text(json.dumps(told))
    (line,) = faults("latents", described)
    assert expected in line.replace(f"{units[1]:.3g};", "1;")
    (described / "statistics.json").write_text(
        json.dumps({"mean": stored.mean(axis=(0, 2, 3)).tolist(), "deviation": units.tolist()})
    )
    assert list(faults("latents", described)) == []


def test_absent_cut_and_unlike_files_are_faults(described: Path) -> None:
    path = described / "latents.npy"
    path.write_bytes(path.read_bytes()[:-1000])
    (described / "captions.jsonl").write_text('{"captions": ["a"]}\n' * 39)
    found = list(faults("latents", described))
    assert len(found) == 3 and "captions.jsonl: it has 780 bytes, and had 800" in found[0]
    assert "latents.npy: it has" in found[1] and "latents.npy is damaged" in found[2]
    (described / "labels.npy").rename(described / "away")
    assert f"{described / 'labels.npy'}: it is absent" in list(faults("latents", described))
    (described / "manifest.json").write_text(json.dumps({"format": "other"}))
    assert "is damaged or no manifest" in next(faults("latents", described))


def test_held_out_arrays_are_verified_as_the_others(described: Path) -> None:
    heldout = LATENTS[:10].copy()
    np.save(described / "heldout_labels.npy", np.array([*range(7), 99, 0, 0]))
    heldout[2, 1, 1, 1] = np.nan
    np.save(described / "heldout_latents.npy", heldout)
    assert list(faults("latents", described)) == [
        "held-out part: sample 7: the label is 99, and must be 0..6",
        "held-out part: sample 2: values are not finite (NaN or infinite)",
    ]
    (described / "manifest.json").unlink()
    line, _ = faults("latents", described)
    assert line == "held-out part: sample 7: the label is 99, and must be 0..6"
    (described / "heldout_labels.npy").unlink()
    (line,) = faults("latents", described)
    assert line.startswith("held-out part: data.path: there is no ")


def test_without_a_manifest_layout_and_deviation_are_looked_at(packed: Path) -> None:
    stored = np.load(packed / "latents.npy")
    assert list(faults("latents", packed)) == []
    np.save(packed / "latents.npy", stored * 20)
    (line,) = faults("latents", packed)
    assert line.startswith("the deviation is 20; latents that are scaled have about 1")
    both = np.concatenate([stored, np.full_like(stored, np.log(400))], axis=1)
    np.save(packed / "moments.npy", both)
    (packed / "latents.npy").unlink()
    (line,) = faults("latents", packed)
    assert line.startswith("the deviation is 20;")  # that of the posterior, too
    (packed / "moments.npy").unlink()
    np.save(packed / "latents.npy", stored.transpose(0, 2, 3, 1))
    (line,) = faults("latents", packed)
    assert line == "samples are [8, 8, 4]: channels stand first, [C, H, W]"


def test_every_broken_tar_and_sample_is_named(shards: Path) -> None:
    for name in ("part-00.tar", "part-02.tar"):
        content = (shards / name).read_bytes()
        (shards / name).write_bytes(content[: len(content) // 2 + 100])
    found = list(faults("shards", shards))
    assert len(found) == 2
    assert "part-00.tar: it is damaged" in found[0] and "part-02.tar: it is damaged" in found[1]
    write_tar(shards / "part-00.tar", MEMBERS[:30])
    rest = [("000030.latent.npy", b"nothing"), *MEMBERS[62:]]
    write_tar(shards / "part-02.tar", [MEMBERS[60], *rest])
    found = list(faults("shards", shards))
    assert len(found) == 1 and "part-02.tar: the latent.npy at byte" in found[0]
    (shards / "part-01.tar").unlink()
    write_tar(shards / "part-09.tar", MEMBERS[30:60])
    *absent, _ = faults("shards", shards)
    assert absent == [
        f"{shards / f'part-0{number}.tar'}: it is absent between others"
        for number in (1, 3, 4, 5, 6)
    ]
    (shards / "part-00.tar").unlink()
    *absent, _ = faults("shards", shards)  # what begins with another number lacks nothing before
    assert "part-03.tar" in absent[0]


def test_each_sample_that_cannot_be_read_is_named_among_those_that_can(tmp_path: Path) -> None:
    """Samples 1 and 3 of 140, which no fingerprint looks at."""
    latents = dict(enumerate(npy(LATENTS[k % 40]) for k in range(140)))
    latents |= dict.fromkeys((1, 3), npy(np.zeros((8, 8, 4), np.float16)))  # of the same size
    members = [
        member
        for k, latent in latents.items()
        for member in ((f"{k:03d}.latent.npy", latent), (f"{k:03d}.cls", b"0"))
    ]
    first, second = faults("shards", write_tar(tmp_path / "a.tar", members))
    assert "is [8, 8, 4], not [4, 8, 8]" in first and "is [8, 8, 4]" in second
    assert first != second
