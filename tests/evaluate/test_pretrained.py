"""Networks of transformers hold all weights of their file, in fp32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.stand_ins import write_text_encoder
from tread_lab.config import UserError
from tread_lab.evaluate.pretrained import load_pretrained, weights_digest


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
    with pytest.raises(UserError, match=r"captions: .* 1 weights are missing, such as .*fc1.bias"):
        load_pretrained("CLIPTextModel", clip, "captions")


def digest(folder: Path, name: str, content: bytes) -> str:
    folder.mkdir()
    (folder / name).write_bytes(content)
    (folder / "config.json").write_text(folder.name)  # no weights
    return weights_digest(folder)


def test_one_other_byte_or_another_name_is_another_digest(tmp_path: Path) -> None:
    """An encoder into which an adapter was merged differs in its middle alone."""
    name, zeros = "model.safetensors", bytes(3 * 2**20)
    first = digest(tmp_path / "first", name, b"a" + zeros)
    assert digest(tmp_path / "same", name, b"a" + zeros) == first
    middle = zeros[: 2**21] + b"m" + zeros[2**21 + 1 :]
    changed = {
        digest(tmp_path / "middle", name, b"a" + middle),
        digest(tmp_path / "size", name, b"a" + zeros + b"z"),
        digest(tmp_path / "name", "model-1.safetensors", b"a" + zeros),
    }
    assert len(changed | {first}) == 4
