"""Networks of transformers hold all weights of their file, in fp32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.made_data import write_text_encoder
from tread_lab.metrics.pretrained import load_pretrained
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
