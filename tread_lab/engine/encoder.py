"""Frozen encoders whose features REPA aligns with; the only door to transformers."""

# B batch, C channels, H height, W width, E width of the features

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tread_lab.data.source import Samples
from tread_lab.engine.alignment import Encoder
from tread_lab.metrics.extractor import load_extractor
from tread_lab.spec.errors import UserError
from tread_lab.spec.repa import RepaSpec

VARIABLE = "TREAD_LAB_ENCODER"
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as DINOv2 was trained


def open_encoder(spec: RepaSpec, samples: Samples, device: torch.device) -> Encoder:
    """The encoder that `spec` names, from samples in model space to features on a token grid.

    Raises:
        UserError: its package or weights are absent, or the samples cannot be shown as images.
    """
    check_encoder(spec, preview=samples.preview)
    features = _fashion16(device) if spec.encoder == "fashion16-v1" else _dinov2(spec, device)

    def encoder(x_BCHW: Tensor, side: int) -> Tensor:
        return _on_grid(features(samples.pixels(x_BCHW).to(device), side), side)

    return encoder


def check_encoder(spec: RepaSpec, *, preview: bool) -> None:
    """Whether the encoder can be opened, without opening it.

    Args:
        preview: the samples cannot be shown as images.

    Raises:
        UserError: it cannot; what to do.
    """
    if preview:
        raise UserError(
            "repa: the encoder needs images, and these latents have no decoder; name the SD"
            " autoencoder's folder in TREAD_LAB_AUTOENCODER"
        )
    if spec.encoder == "fashion16-v1":
        return
    where = _where(spec)
    if importlib.util.find_spec("transformers") is None:
        raise UserError(
            f"repa.encoder: {spec.encoder} needs the package transformers:"
            " `pip install 'tread-lab[repa]'`"
        )
    if Path(where).is_absolute() and not (Path(where) / "config.json").exists():
        raise UserError(f"repa: {where} holds no config.json; give its folder or hub id")


def weights_folder(spec: RepaSpec) -> Path | None:
    """Where the encoder's weights lie on this machine; nothing for shipped ones and hub ids."""
    if spec.encoder == "fashion16-v1":
        return None
    folder = Path(_where(spec))
    return folder if folder.is_dir() else None


def _where(spec: RepaSpec) -> str:
    where = spec.path or os.environ.get(VARIABLE)
    if where is None:
        raise UserError(f"repa: where is {spec.encoder}? name its folder or hub id in {VARIABLE}")
    return where


def _on_grid(features_BEHW: Tensor, side: int) -> Tensor:
    """[B, side * side, E] in raster order, resampled where the encoder has another grid."""
    if features_BEHW.shape[-1] != side:
        options: dict[str, Any] = {"mode": "bilinear", "align_corners": False, "antialias": True}
        features_BEHW = F.interpolate(features_BEHW.float(), size=(side, side), **options)
    return features_BEHW.flatten(2).transpose(1, 2)


def _fashion16(device: torch.device) -> Any:
    """The maps [B, 64, 8, 8] after the third convolution of the embedded images' classifier."""
    convolutions = load_extractor("fashion16-v1").to(device).convolutions[:9]

    def features(images_BCHW: Tensor, side: int) -> Tensor:
        maps_BEHW: Tensor = convolutions(images_BCHW.float() / 127.5 - 1)
        return maps_BEHW

    return features


def _dinov2(spec: RepaSpec, device: torch.device) -> Any:
    """DINOv2's patch tokens of images resized to `side` patches of its own size."""
    model = _load(_where(spec)).eval().to(device)
    if model.config.hidden_size != spec.features:
        found = f"has features of width {model.config.hidden_size}, not {spec.features}"
        raise UserError(f"repa.encoder: what is there for {spec.encoder!r} {found}")
    mean = torch.tensor(MEAN, device=device)[:, None, None]
    deviation = torch.tensor(DEVIATION, device=device)[:, None, None]

    def features(images_BCHW: Tensor, side: int) -> Tensor:
        size = side * model.config.patch_size
        options: dict[str, Any] = {"mode": "bicubic", "align_corners": False, "antialias": True}
        x_BCHW = F.interpolate(images_BCHW.float() / 255, size=(size, size), **options)
        x_BCHW = (x_BCHW.clamp(0, 1).expand(-1, 3, -1, -1) - mean) / deviation
        tokens_BNE = model(x_BCHW).last_hidden_state[:, -side * side :]
        maps_BEHW: Tensor = tokens_BNE.transpose(1, 2).unflatten(2, (side, side))
        return maps_BEHW

    return features


def _load(where: str) -> Any:
    from transformers import AutoModel

    try:
        return AutoModel.from_pretrained(where, use_safetensors=True).requires_grad_(False)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"repa: {where!r} cannot be loaded: {reason}") from None
