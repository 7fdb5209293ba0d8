"""Packing: the same samples from every source, with images, mirrored ones, captions, statistics."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.data.conftest import MEMBERS, npy, opened, write_tar
from tests.data.test_folder import repa
from tests.data.test_lightning import files
from tread_lab.data import open_data
from tread_lab.data.captions import write_captions
from tread_lab.data.content import content_digest
from tread_lab.data.latents import read_manifest, write_manifest
from tread_lab.prepare.pack import pack, source_of
from tread_lab.prepare.verify import faults
from tread_lab.specs import DataSpec, UserError
from tread_lab.terminal.data import data_settings

__all__ = ["files", "repa"]


def packed_from(path: Path, folder: Path) -> int:
    return len(list(pack(source_of(path), path, folder, batch=16)))


def everything(source: str, path: Path, **changes: Any) -> tuple[torch.Tensor, torch.Tensor]:
    samples = opened(source, path, **changes)
    return samples.take(torch.arange(len(samples)))


def test_tars_are_packed_as_they_are_stored(shards: Path, tmp_path: Path) -> None:
    assert packed_from(shards, tmp_path / "out") == 4
    found = everything("latents", tmp_path / "out", scale=1, decoder_scale=0.18215)
    assert all(map(torch.equal, found, everything("shards", shards)))
    assert packed_from(shards, tmp_path / "out") == 0
    assert not (tmp_path / "out" / ".building").exists()


def test_samples_that_packing_would_round_are_refused(tmp_path: Path) -> None:
    wider = {MEMBERS[41][0]: npy(np.full((4, 8, 8), 1.0001, np.float32))}
    write_tar(tmp_path / "mixed" / "a.tar", {**dict(MEMBERS), **wider}.items())
    with pytest.raises(
        UserError, match=r"latents of samples 16 to 31 hold float32, .*first sample fl"
    ):
        packed_from(tmp_path / "mixed", tmp_path / "out")


def test_settings_stay_however_often_a_set_is_packed(shards: Path, tmp_path: Path) -> None:
    packed_from(shards, tmp_path / "out")
    packed_from(tmp_path / "out", tmp_path / "again")
    first, second = (
        data_settings(shards, read_manifest(tmp_path / folder) or {}) for folder in ("out", "again")
    )
    assert first == second and (first["scale"], first["decoder_scale"]) == (1, 0.18215)


def test_what_a_manifest_says_of_the_encoder_comes_along(packed: Path, tmp_path: Path) -> None:
    facts: dict[str, Any] = {
        "encoder": {"name": "vae"}, "scale": 0.5, "shift": 0.1, "decoder_range": "unit",
        "classes": 7, "licence": "ours",
    }  # fmt: skip
    write_manifest(packed, {"made_with": {**facts, "crop": "of ADM"}}, [])
    packed_from(packed, tmp_path / "out")
    made: Any = (read_manifest(tmp_path / "out") or {})["made_with"]
    assert made.items() >= facts.items() and "crop" not in made


def test_a_deviation_becomes_a_log_variance_and_images_come_along(
    repa: Path, tmp_path: Path
) -> None:
    packed_from(repa, tmp_path / "out")
    assert source_of(repa / "vae-sd") == "folder" and source_of(tmp_path / "out") == "latents"
    found = everything("latents", tmp_path / "out")
    assert all(map(torch.equal, found, everything("folder", repa)))
    moments = np.load(tmp_path / "out" / "moments.npy").astype(np.float64)
    assert np.allclose(np.exp(0.5 * moments[:, 4:]), 0.5, atol=1e-3)
    assert np.load(tmp_path / "out" / "images.npy").shape == (40, 3, 16, 16)


def test_mirrored_latents_and_statistics_come_along_however_often_they_are_packed(
    files: Path, tmp_path: Path
) -> None:
    packed_from(files, tmp_path / "out")
    packed_from(tmp_path / "out", tmp_path / "again")
    for folder in ("out", "again"):
        found = everything("latents", tmp_path / folder, normalise=True)
        assert all(map(torch.equal, found, everything("safetensors", files)))
    plain = np.load(tmp_path / "out" / "latents.npy")
    assert np.allclose(np.load(tmp_path / "out" / "latents_flip.npy"), plain + 100)
    statistics = next(files.glob("*stats*"))
    tensors = torch.load(statistics)
    torch.save({name: 2 * tensor for name, tensor in tensors.items()}, statistics)
    with pytest.raises(UserError, match="holds a data set with other content; choose"):
        packed_from(files, tmp_path / "out")


def test_held_out_arrays_and_captions_come_along(packed: Path, tmp_path: Path) -> None:
    heldout = np.random.default_rng(1).normal(size=(3, 4, 8, 8)).astype(np.float16)
    np.save(packed / "heldout_latents.npy", heldout)
    np.save(packed / "heldout_labels.npy", np.arange(3))
    for part, count in (("", 40), ("heldout_", 3)):
        (packed / f"{part}captions.jsonl").write_text('{"captions": ["a"]}\n' * count)
    packed_from(packed, tmp_path / "out")
    spec = DataSpec(source="latents", path=str(tmp_path / "out"), channels=4, size=8, classes=7)
    x_NCHW, y_N = open_data(spec, "heldout").take(torch.arange(3))
    assert torch.equal(x_NCHW, torch.from_numpy(heldout).float()) and y_N.tolist() == [0, 1, 2]
    assert content_digest(spec) == content_digest(replace(spec, path=str(packed)))
    assert list(faults("latents", tmp_path / "out")) == []
    np.save(packed / "heldout_latents.npy", heldout + 1)
    with pytest.raises(UserError, match="holds a data set with other held-out samples"):
        packed_from(packed, tmp_path / "out")
    manifest = tmp_path / "out" / "manifest.json"
    tree = json.loads(manifest.read_text())
    del tree["made_with"]  # as that of another tool
    manifest.write_text(json.dumps(tree))
    with pytest.raises(UserError, match="holds a data set with other"):
        packed_from(packed, tmp_path / "out")


def test_captions_and_classes_come_along_and_a_missing_caption_is_refused(
    packed: Path, tmp_path: Path
) -> None:
    (packed / "classes.json").write_text('["cat", "dog"]')
    write_captions(packed / "captions.jsonl", [[f"caption {k}"] for k in range(40)])
    packed_from(packed, tmp_path / "out")
    text = (tmp_path / "out" / "captions.jsonl").read_text()
    assert text == (packed / "captions.jsonl").read_text()
    assert json.loads((tmp_path / "out" / "classes.json").read_text()) == ["cat", "dog"]
    write_captions(packed / "captions.jsonl", [["one"]] * 39)
    with pytest.raises(UserError, match="has 39 lines, and there are 40 samples"):
        packed_from(packed, tmp_path / "again")


def test_what_lies_in_a_folder_says_its_source(
    packed: Path, shards: Path, files: Path, tmp_path: Path
) -> None:
    assert source_of(packed) == "latents" and source_of(Path("x.npz")) == "latents"
    assert source_of(shards) == "shards" and source_of(Path("data/*.tar")) == "shards"
    (tmp_path / "edm2.zip").touch()
    with pytest.raises(UserError, match=r"edm2.zip is no .tar and no .npz; unpack it"):
        source_of(tmp_path / "edm2.zip")
    (packed / "a.tar").write_bytes(b"")
    with pytest.raises(UserError, match=r"holds latents and shards; say which by --source"):
        source_of(packed)
