"""Frozen encoders whose features REPA aligns with."""

# B batch, C channels, H height, W width, E width of the features

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tread_lab.config.errors import UserError
from tread_lab.data.source import Samples
from tread_lab.evaluate.extraction import load_extractor
from tread_lab.evaluate.pretrained import (
    DEVIATION,
    MEAN,
    check_package,
    load_pretrained,
    network_config,
    resampled_positions,
    weights_digest,
)
from tread_lab.methods.repa.spec import ENCODERS, RepaSpec
from tread_lab.train.precision import matrix_products

VARIABLE = "TREAD_LAB_ENCODER"

# encoder(images [B, C, H, W]) -> features, on the grid of tokens as [B, N, E]
Encoder = Callable[[Tensor], Tensor]


def open_encoder(spec: RepaSpec, samples: Samples, device: torch.device, *, side: int) -> Encoder:
    """Return the encoder that `spec` names, from uint8 images of `samples` to features on a grid.

    Args:
        side: tokens along one side of a sample.

    Raises:
        UserError: missing package or weights, or samples without images.
    """
    check_encoder(spec, samples)
    features = (_fashion16 if spec.encoder in SHIPPED else _patch_tokens)(spec, device, side)

    def encoder(images_BCHW: Tensor) -> Tensor:
        with torch.no_grad(), torch.autocast(device.type, enabled=False), matrix_products("tf32"):
            return _on_grid(features(images_BCHW.to(device)), side)

    return encoder


def target_images(spec: RepaSpec, samples: Samples, ids_B: Tensor, device: torch.device) -> Tensor:
    """Return the images, uint8, that `spec.target` names: as stored, or decoded on `device`."""
    images_BCHW = samples.images(ids_B) if spec.target == "image" else None
    if images_BCHW is None:
        return samples.pixels(samples.take(ids_B)[0].to(device))
    return images_BCHW


def check_encoder(spec: RepaSpec, samples: Samples) -> None:
    """Check that encoder and images are available, without opening the encoder.

    Raises:
        UserError: one is missing; names the remedy.
    """
    if spec.target == "image" and samples.images(torch.zeros(1, dtype=torch.long)) is None:
        raise UserError(
            "repa.target: requires images.npy (uint8 [N, 3, height, width], in the order of"
            " latents.npy) beside the latents. Or write `target: decoded` and set"
            " TREAD_LAB_AUTOENCODER to the SD autoencoder's folder."
        )
    if getattr(samples, "flips", False):
        raise UserError(
            "repa: requires unmirrored latents, because targets are computed once per image. Try"
            " data.flips=false."
        )
    if spec.target == "decoded" and samples.preview:
        raise UserError(
            "repa: requires images, but these latents have no decoder. Set TREAD_LAB_AUTOENCODER"
            " to the SD autoencoder's folder."
        )
    if spec.encoder in SHIPPED:
        return
    check_package("transformers", "repa")
    where = Path(_where(spec))
    if where.is_absolute() or where.is_dir():
        network_config(where, "repa", "transformers")


def weights_folder(spec: RepaSpec) -> Path | None:
    """Return the folder of the encoder's weights; `None` for shipped ones and hub ids."""
    if spec.encoder in SHIPPED:
        return None
    folder = Path(_where(spec))
    return folder if folder.is_dir() else None


def encoder_digest(spec: RepaSpec) -> str:
    """Return the identity of the encoder's weights: a digest of their files, else their origin."""
    folder = weights_folder(spec)
    if folder is not None:
        return weights_digest(folder)
    return spec.encoder if spec.encoder in SHIPPED else _where(spec)


def _where(spec: RepaSpec) -> str:
    by_name = spec.encoder in ENCODERS
    where = spec.path or (os.environ.get(VARIABLE) if by_name else spec.encoder)
    if where is None:
        raise UserError(f"repa: {spec.encoder} not found. Set {VARIABLE} to its folder or hub ID.")
    return where


def _on_grid(features_BEHW: Tensor, side: int) -> Tensor:
    """[B, side * side, E] in raster order, resampled where the encoder has another grid."""
    if features_BEHW.shape[-1] != side:
        options: dict[str, Any] = {"mode": "bilinear", "align_corners": False, "antialias": True}
        features_BEHW = F.interpolate(features_BEHW.float(), size=(side, side), **options)
    return features_BEHW.flatten(2).transpose(1, 2)


def _fashion16(spec: RepaSpec, device: torch.device, side: int) -> Encoder:
    """The maps [B, 64, 8, 8] after the third convolution of the embedded images' classifier."""
    convolutions = load_extractor("fashion16-v1").to(device).convolutions[:9]
    return lambda images_BCHW: convolutions(images_BCHW.float() / 127.5 - 1)


def _patch_tokens(spec: RepaSpec, device: torch.device, side: int) -> Encoder:
    """The patch tokens of images resized to `side` patches of the encoder's own size, as in REPA:
    normalised, then enlarged by bicubic interpolation without antialias or clamp. DINOv2's table of
    positions is resampled once, with antialias; other networks resample or rotate their own.

    Raises:
        UserError: the network has no patch tokens, or features of another width.
    """
    where = _where(spec)
    model = load_pretrained("AutoModel", where, "repa", use_safetensors=True)
    model = getattr(model, "vision_model", model).requires_grad_(False).eval().to(device)
    patch, width = (getattr(model.config, name, None) for name in ("patch_size", "hidden_size"))
    got = f"got {model.config.model_type}. Try facebook/dinov2-base."
    no_tokens = UserError(f"repa.encoder: must have a patch token for each place, {got}")
    if patch is None:
        raise no_tokens
    if width != spec.features:
        raise UserError(f"repa.encoder: width must be {spec.features}, got {width}")
    statistics = MEAN, DEVIATION
    if spec.width is not None:
        seen = load_pretrained("AutoImageProcessor", where, "repa")
        statistics = seen.image_mean, seen.image_std
    mean, deviation = (torch.tensor(x, device=device)[:, None, None] for x in statistics)
    options, embeddings = {}, getattr(model, "embeddings", None)
    if "interpolate_pos_encoding" in inspect.signature(model.forward).parameters:
        options["interpolate_pos_encoding"] = True
    elif (table := getattr(embeddings, "position_embeddings", None)) is not None:
        table_1ND = resampled_positions(table.detach(), side, size=(side, side), antialias=True)
        model.embeddings.position_embeddings = nn.Parameter(table_1ND, requires_grad=False)

    def features(images_BCHW: Tensor) -> Tensor:
        x_BCHW = normalised(images_BCHW, mean, deviation, side * patch)
        tokens_BNE = model(x_BCHW, **options).last_hidden_state[:, -side * side :]
        if tokens_BNE.shape[1] < side * side:
            raise no_tokens
        return tokens_BNE.transpose(1, 2).unflatten(2, (side, side))

    return features


def normalised(images_BCHW: Tensor, mean: Tensor, deviation: Tensor, size: int) -> Tensor:
    """Return uint8 images as the encoder's input [B, 3, size, size]; values may overshoot."""
    x_BCHW = (images_BCHW.float().expand(-1, 3, -1, -1) / 255 - mean) / deviation
    return F.interpolate(x_BCHW, size=(size, size), mode="bicubic", align_corners=False)


SHIPPED = ("fashion16-v1",)  # encoders whose weights are part of this package
