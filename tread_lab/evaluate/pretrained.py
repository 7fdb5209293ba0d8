"""Frozen networks of transformers, from a folder or the hub, and DINOv2's features by one."""

# B batch, H height, W width, N places of the table, D features

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import Tensor, nn

from tread_lab.config.errors import UserError, first_line
from tread_lab.data.content import sha256

VARIABLE = "TREAD_LAB_DINOV2"
WEIGHTS = "model.safetensors"
SIZE = 224  # pixels of a side, 16 patches
SHAPE = {"model_type": "dinov2", "hidden_size": 1024, "patch_size": 14}  # of ViT-L/14
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as DINOv2 was trained
OFFSET = 0.1  # which DINOv2's own code adds to the side before it resamples its positions


def check_package(package: str, field: str) -> None:
    """Refuse a frozen network whose package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise UserError(f"{field}: requires the package {package}. Try `pip install {package}`.")


def network_config(folder: Path, field: str, package: str, **expected: object) -> dict[str, Any]:
    """Return the config.json of a frozen network, without loading the network.

    Args:
        field: the requesting field or variable, for errors.
        package: package that loads it.
        expected: required values of its config, or of its text config.

    Raises:
        UserError: a missing package, network or weights.
    """
    check_package(package, field)
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        stated = {**config, **config.get("text_config", {})}
    except (OSError, ValueError, AttributeError, TypeError):
        raise UserError(f"{field}: {folder} must contain a readable config.json") from None
    for name, value in expected.items():
        if stated.get(name) != value:
            found = f"{name} {stated.get(name)}, and {value} is expected"
            raise UserError(f"{field}: {folder} has {found}")
    if not any(folder.glob("*.safetensors")):
        raise UserError(f"{field}: {folder} must contain weights (*.safetensors)")
    return config


def load_pretrained(kind: str, where: str | Path, field: str, **options: Any) -> Any:
    """Return the model of the transformers class `kind` from a folder or hub ID.

    The network is in fp32 and complete; by default transformers uses the file's type and
    initializes missing weights at random.

    Args:
        field: the requesting field, for errors.

    Raises:
        UserError: not loadable, or missing weights.
    """
    import transformers

    transformers.utils.logging.disable_progress_bar()
    made, local = getattr(transformers, kind), isinstance(where, Path)
    if is_network := not kind.endswith(("Tokenizer", "Processor")):
        options["output_loading_info"] = True
    try:
        loaded = made.from_pretrained(where, local_files_only=local, **options)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{field}: {str(where)!r} cannot be loaded: {first_line(error)}") from None
    if not is_network:
        return loaded
    network, found = loaded
    if missing := sorted(found["missing_keys"]):
        what = f"{len(missing)} weights are missing, such as {missing[0]}"
        raise UserError(f"{field}: {str(where)!r} cannot be loaded: {what}")
    return network.float()


def weights_digest(folder: Path) -> str:
    """Return the SHA-256 of names and contents of the files of weights in a folder."""
    files = sorted(folder.glob("*.safetensors"))
    lines = "".join(f"{path.name} {sha256(path)}\n" for path in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def dinov2_weights() -> Path:
    """Return the file of weights in the folder TREAD_LAB_DINOV2 of a DINOv2 ViT-L/14.

    No digest is published for this format; the file's SHA-256 is part of every record.

    Raises:
        UserError: transformers or the folder is missing, or another network.
    """
    where = os.environ.get(VARIABLE)
    if not where:
        raise UserError(
            "metrics: fd_dinov2 requires facebook/dinov2-large of the Hugging Face hub. Set "
            f"{VARIABLE} to its folder."
        )
    folder = Path(where).expanduser()
    network_config(folder, f"metrics: {VARIABLE}", "transformers", **SHAPE)
    if not (folder / WEIGHTS).is_file():
        raise UserError(f"metrics: {VARIABLE}: {folder} must contain {WEIGHTS}")
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
    """Return images resized to side x side by Pillow's bicubic filter, as whole levels in floats.

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
    """Return DINOv2's positions resampled for a side x side grid as in its code: by a factor of
    (side + 0.1) over the old side, bicubic, without antialias."""
    factor = (side + OFFSET) / math.isqrt(table_1ND.shape[1] - 1)
    return resampled_positions(table_1ND, side, scale_factor=(factor, factor))


def resampled_positions(table_1ND: Tensor, side: int, **options: Any) -> Tensor:
    """Return a table of positions for a side x side grid; its first row is the class token's.

    Args:
        options: of torch's `interpolate`, which is bicubic.
    """
    first_11D, places_1ND = table_1ND[:, :1], table_1ND[:, 1:]
    old = math.isqrt(places_1ND.shape[1])
    if old == side:
        return table_1ND
    grid_1DHW = places_1ND.mT.reshape(1, -1, old, old).float()
    grid_1DHW = F.interpolate(grid_1DHW, mode="bicubic", **options)
    assert grid_1DHW.shape[2:] == (side, side)
    return torch.cat([first_11D, grid_1DHW.flatten(2).mT.to(first_11D.dtype)], dim=1)
