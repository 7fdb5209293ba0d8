"""DINOv2's features for a Frechet distance, as Stein et al. (2023) describe images with it."""

# B batch, H height, W width, N places of the table, D features

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tread_lab.config.errors import UserError
from tread_lab.evaluate.pretrained import load_pretrained, network_config

VARIABLE = "TREAD_LAB_DINOV2"
WEIGHTS = "model.safetensors"
SIZE = 224  # pixels of a side, 16 patches
SHAPE = {"model_type": "dinov2", "hidden_size": 1024, "patch_size": 14}  # of ViT-L/14
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as DINOv2 was trained
OFFSET = 0.1  # which DINOv2's own code adds to the side before it resamples its positions


def dinov2_weights() -> Path:
    """Return the file of weights in the folder TREAD_LAB_DINOV2 of a DINOv2 ViT-L/14.

    No digest is published for this format: the file's SHA-256 is part of every record instead.

    Raises:
        UserError: transformers or the folder is absent, or the folder holds another network.
    """
    where = os.environ.get(VARIABLE)
    if not where:
        raise UserError(
            "metrics: fd_dinov2 needs facebook/dinov2-large of the Hugging Face hub; give its"
            f" folder in {VARIABLE}"
        )
    folder = Path(where).expanduser()
    network_config(folder, f"metrics: {VARIABLE}", "transformers", **SHAPE)
    if not (folder / WEIGHTS).is_file():
        raise UserError(f"metrics: {VARIABLE}: {folder} holds no {WEIGHTS}")
    return folder / WEIGHTS


def dinov2_features(weights: Path, device: torch.device) -> Callable[[Tensor], dict[str, Tensor]]:
    """Return uint8 images [B, 1 or 3, H, W] -> {"pool": features [B, 1024]}, on `device`.

    An image is resized to 224 x 224 pixels by Pillow's bicubic filter, with antialias and rounded
    to bytes, and normalised; its features are the class token after the last norm.
    """
    model = load_pretrained("Dinov2Model", weights.parent, "metrics", use_safetensors=True)
    model = model.requires_grad_(False).eval().to(device)
    table_1ND = model.embeddings.position_embeddings.detach()
    side = SIZE // SHAPE["patch_size"]  # type: ignore[operator]
    places = nn.Parameter(offset_positions(table_1ND, side), requires_grad=False)
    model.embeddings.position_embeddings = places
    mean, deviation = (torch.tensor(x, device=device)[:, None, None] for x in (MEAN, DEVIATION))

    def describe(images_BCHW: Tensor) -> dict[str, Tensor]:
        x_BCHW = resized(images_BCHW, SIZE)  # one channel becomes three with their means
        states_BND = model((x_BCHW / 255 - mean) / deviation).last_hidden_state
        return {"pool": states_BND[:, 0]}

    return describe


def resized(images_BCHW: Tensor, side: int) -> Tensor:
    """Return images side x side as Pillow's bicubic filter gives them: whole levels as floats.

    It filters rows, then columns, and rounds to bytes after each.
    """
    x_BCHW = images_BCHW.float()
    for size in ((x_BCHW.shape[2], side), (side, side)):
        x_BCHW = F.interpolate(
            x_BCHW, size=size, mode="bicubic", align_corners=False, antialias=True
        )
        x_BCHW = x_BCHW.round().clamp(0, 255)
    return x_BCHW


def offset_positions(table_1ND: Tensor, side: int) -> Tensor:
    """Return DINOv2's table of positions for a side x side grid as its own code resamples it: by a
    factor of (side + 0.1) over the old side, bicubic, without antialias."""
    first_11D, places_1ND = table_1ND[:, :1], table_1ND[:, 1:]
    old = math.isqrt(places_1ND.shape[1])
    if old == side:
        return table_1ND
    grid_1DHW = places_1ND.mT.reshape(1, -1, old, old).float()
    factor = (side + OFFSET) / old
    grid_1DHW = F.interpolate(grid_1DHW, scale_factor=(factor, factor), mode="bicubic")
    assert grid_1DHW.shape[2:] == (side, side)
    return torch.cat([first_11D, grid_1DHW.flatten(2).mT.to(first_11D.dtype)], dim=1)
