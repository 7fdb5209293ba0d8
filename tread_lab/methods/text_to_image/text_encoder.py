"""The frozen text encoder of captions: a CLIP and its tokenizer, from a local folder alone."""

# B batch, T text tokens, E their width

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tread_lab.config.errors import UserError
from tread_lab.evaluate.pretrained import load_pretrained, network_config, weights_digest
from tread_lab.methods.text_to_image.spec import LONGEST, CaptionSpec
from tread_lab.train.precision import matrix_products

VARIABLE = "TREAD_LAB_TEXT_ENCODER"
CLIPS = ("clip", "clip_text_model")  # `model_type` of a whole CLIP and of its text half
DEFAULTS = {"hidden_size": 512, "max_position_embeddings": LONGEST}  # which a config may leave out
# What a config says of how it was saved, not of the network.
OF_THE_FILE = ("transformers_version", "_name_or_path", "architectures", "dtype", "torch_dtype")
TOKENIZER = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json")

# encode(texts of B captions) -> tokens [B, T, E]
TextEncoder = Callable[[Sequence[str]], Tensor]


def encoder_folder(spec: CaptionSpec) -> Path:
    """Return the checked folder of the encoder of `spec`.

    Raises:
        UserError: transformers or the folder is missing, or other content.
    """
    where = spec.path or os.environ.get(VARIABLE)
    if where is None:
        raise UserError(
            f"captions: {spec.encoder} not found. Set captions.path or {VARIABLE} to its folder."
        )
    folder = Path(where).expanduser()
    _check_config(spec, folder)
    if not any((folder / name).is_file() for name in TOKENIZER[:2]):
        raise UserError(
            f"captions: {folder} must contain {' or '.join(TOKENIZER[:2])} of a tokenizer"
        )
    return folder


def _text_config(folder: Path) -> dict[str, Any]:
    """Return what is written of the text encoder, alone or within a whole CLIP."""
    config = network_config(folder, "captions", "transformers")
    if config.get("model_type") not in CLIPS:
        raise UserError(
            f"captions: {folder} must contain a CLIP model, got {config.get('model_type')!r}"
        )
    return {**DEFAULTS, **config.get("text_config", config)}


def _check_config(spec: CaptionSpec, folder: Path) -> None:
    text = _text_config(folder)
    if text["hidden_size"] != spec.width:
        wrong = f"tokens of width {text['hidden_size']}; {spec.encoder} has {spec.width}"
        raise UserError(f"captions.encoder: {folder} gives {wrong}")
    if spec.tokens > text["max_position_embeddings"]:
        most = text["max_position_embeddings"]
        raise UserError(f"captions.tokens: must be at most {most} for {folder}, got {spec.tokens}")


def text_encoder_digest(spec: CaptionSpec) -> str:
    """Return a digest of the encoder's weights, its config and its tokenizer's files.

    The config is included because it sets the activation, `quick_gelu` or `gelu`.

    Raises:
        UserError: as `encoder_folder`.
    """
    folder = encoder_folder(spec)
    digest = hashlib.sha256(weights_digest(folder).encode())
    decides = {k: value for k, value in _text_config(folder).items() if k not in OF_THE_FILE}
    digest.update(json.dumps(decides, sort_keys=True).encode())
    for path in (folder / name for name in TOKENIZER):
        if path.is_file():
            digest.update(path.name.encode() + b"\n" + path.read_bytes())
    return digest.hexdigest()


def open_text_encoder(spec: CaptionSpec, device: torch.device) -> TextEncoder:
    """Return the encoder of `spec`: texts to last hidden states [B, T, E] on `device`.

    Texts are cut or padded to T tokens; padding is not masked, as in Stable Diffusion 1.

    Raises:
        UserError: as in `encoder_folder`, or unreadable weights.
    """
    folder = encoder_folder(spec)
    tokenizer = load_pretrained("CLIPTokenizer", folder, "captions")
    model = load_pretrained("CLIPTextModel", folder, "captions", use_safetensors=True)
    model = model.requires_grad_(False).eval().to(device)
    options = {"padding": "max_length", "truncation": True, "return_tensors": "pt"}

    def encode(texts: Sequence[str]) -> Tensor:
        ids_BT = tokenizer([*texts], max_length=spec.tokens, **options).input_ids.to(device)
        with torch.no_grad(), torch.autocast(device.type, enabled=False), matrix_products("tf32"):
            tokens_BTE: Tensor = model(ids_BT).last_hidden_state
        return tokens_BTE

    return encode
