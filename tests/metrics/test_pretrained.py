"""Networks of transformers hold all weights of their file, in fp32."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tread_lab.metrics.pretrained import check_weights, load_pretrained, weights_digest
from tread_lab.prepare.stand_ins import write_text_encoder
from tread_lab.specs import UserError


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    pytest.importorskip("transformers")
    write_text_encoder(tmp_path, width=16)
    return tmp_path


def rewrite(folder: Path, **changes: torch.Tensor | None) -> None:
    """Replace weights of a folder, or leave them out."""
    file = folder / "model.safetensors"
    state = {**load_file(file), **changes}
    save_file({k: x for k, x in state.items() if x is not None}, file, metadata={"format": "pt"})


def test_a_file_in_half_precision_computes_in_fp32(clip: Path) -> None:
    halves = {k: x.half() for k, x in load_file(clip / "model.safetensors").items()}
    rewrite(clip, **halves)
    config = json.loads((clip / "config.json").read_text())
    (clip / "config.json").write_text(json.dumps({**config, "dtype": "float16"}))
    model = load_pretrained("CLIPTextModel", clip, "captions")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_weights_that_a_file_lacks_are_never_drawn_at_random(clip: Path) -> None:
    names = [*load_file(clip / "model.safetensors")]
    rewrite(clip, **{next(name for name in names if name.endswith("fc1.bias")): None})
    with pytest.raises(UserError, match=r"captions: .* cannot be loaded: .*fc1.bias is missing$"):
        load_pretrained("CLIPTextModel", clip, "captions")
    rewrite(clip, **{name: None for name in names if "fc2" in name})
    with pytest.raises(UserError, match=r"fc1.bias is missing, and 2 more$"):
        load_pretrained("CLIPTextModel", clip, "captions")


def test_a_folder_without_weights_is_one_line(clip: Path) -> None:
    (clip / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"^captions: '.*' cannot be loaded: .*safetensors") as said:
        load_pretrained("CLIPTextModel", clip, "captions", use_safetensors=True)
    assert "\n" not in str(said.value)


MIDDLE = bytes(3 * 2**20)  # longer than both ends together


def digest(folder: Path, name: str, content: bytes) -> str:
    folder.mkdir()
    (folder / name).write_bytes(content)
    (folder / "config.json").write_text(folder.name)  # no weights
    return weights_digest(folder)


def test_another_end_size_or_name_is_another_digest(tmp_path: Path) -> None:
    name, other = "model.safetensors", "model-1.safetensors"
    first = digest(tmp_path / "first", name, b"a" + MIDDLE + b"z")
    assert len(first) == 16
    assert digest(tmp_path / "same", name, b"a" + MIDDLE + b"z") == first
    changed = [
        digest(tmp_path / "begin", name, b"b" + MIDDLE + b"z"),
        digest(tmp_path / "end", name, b"a" + MIDDLE + b"y"),
        digest(tmp_path / "size", name, b"a" + MIDDLE + b"\0z"),
        digest(tmp_path / "name", other, b"a" + MIDDLE + b"z"),
    ]
    assert len({first, *changed}) == 5


def test_weights_of_another_middle_are_refused_and_equal_ones_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder into which an adapter was merged kept its features, though its digest is equal."""
    lab, folder, name = tmp_path / "cache", tmp_path / "encoder", "model.safetensors"
    known = digest(folder, name, b"a" + MIDDLE + b"z")
    check_weights(lab, known, folder, "captions")
    shutil.copytree(folder, tmp_path / "copy")
    check_weights(lab, known, tmp_path / "copy", "captions")  # the same content elsewhere
    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("read again"))
        for node in ("encoder", "copy", "encoder"):  # nodes with a copy each take turns
            check_weights(lab, known, tmp_path / node, "captions")
    middle = b"m".join([MIDDLE[: 2**21], MIDDLE[2**21 + 1 :]])
    assert digest(tmp_path / "other", name, b"a" + middle + b"z") == known
    with pytest.raises(UserError, match=r"^captions: .*other holds other weights than those"):
        check_weights(lab, known, tmp_path / "other", "captions")
