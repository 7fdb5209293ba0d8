"""Turns latents into images with the Stable Diffusion autoencoder; the only door to diffusers."""

# B batch, C channels, H height, W width

from __future__ import annotations

import importlib.util
import math
import os
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tread_lab.spec.errors import UserError

VARIABLE = "TREAD_LAB_AUTOENCODER"
CHUNK = 16  # images decoded at once


class Autoencoder:
    """Decodes the network's values, which are what the encoder gave times `scale`.

    Weights are loaded with the first decoding, from safetensors only, and stay in fp32.

    Args:
        where: local folder or hub id, such as `stabilityai/sd-vae-ft-ema`.
        scale: what the network's values are divided by before decoding (0.18215 for SD).

    Raises:
        UserError: diffusers is not installed; on decoding: no such weights.
    """

    def __init__(self, where: str, *, scale: float) -> None:
        if importlib.util.find_spec("diffusers") is None:
            raise UserError(
                f"autoencoder {where!r} needs the package diffusers: "
                "`pip install 'tread-lab[latents]'`"
            )
        if Path(where).is_absolute() and not (Path(where) / "config.json").exists():
            raise UserError(f"autoencoder: {where} holds no config.json; give its folder or hub id")
        self._where = where
        self._scale = scale
        self._model: Any = None

    @torch.inference_mode()
    def __call__(self, x_BCHW: Tensor) -> Tensor:
        """uint8 images [B, 3, 8H, 8W] of latents in model space, on the device of `x_BCHW`."""
        if self._model is None:
            self._model = _load(self._where)
            self._compare_scale()
        model = self._model.to(x_BCHW.device)
        channels = model.config.latent_channels
        if x_BCHW.shape[1] != channels:
            found = f"decodes {channels} channels, the data have {x_BCHW.shape[1]}"
            raise UserError(f"autoencoder {self._where!r} {found}")
        latents_BCHW = x_BCHW.float() / self._scale
        return torch.cat([levels(model.decode(z).sample) for z in torch.split(latents_BCHW, CHUNK)])

    def _compare_scale(self) -> None:
        """Warn where the autoencoder's own file says another factor than the data's spec."""
        own = self._model.config.get("scaling_factor")
        if own and not math.isclose(own, self._scale, rel_tol=0.01):
            warnings.warn(
                f"autoencoder {self._where!r} says that its latents are times {own:g}, but they are"
                f" divided by {self._scale:g} before decoding: check data.decoder_scale",
                stacklevel=3,
            )


def levels(image_BCHW: Tensor) -> Tensor:
    """[-1, 1] -> the nearest of 0..255, as DiT does: x -> floor(127.5 x + 128)."""
    return (127.5 * image_BCHW + 128).clamp(0, 255).to(torch.uint8)


def open_autoencoder(where: str | None, *, scale: float) -> Autoencoder | None:
    """The autoencoder at `where` or in TREAD_LAB_AUTOENCODER; nothing where neither is given."""
    where = where or os.environ.get(VARIABLE)
    return Autoencoder(where, scale=scale) if where else None


def _load(where: str) -> Any:
    from diffusers import AutoencoderKL

    try:
        return AutoencoderKL.from_pretrained(where, use_safetensors=True).eval()
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"autoencoder {where!r} cannot be loaded: {reason}") from None
