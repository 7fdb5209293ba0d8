"""Latents to images and images to latents by diffusers' AutoencoderKL; its only door."""

# B batch, C channels, H height, W width

from __future__ import annotations

import copy
import functools
import importlib.util
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from tread_lab.config.errors import UserError, first_line
from tread_lab.data.content import hashed, sha256
from tread_lab.records.durable import read_json

VARIABLE = "TREAD_LAB_AUTOENCODER"
# Most pixels of the images of one decoding call: 8 of 256x256 on a CPU (2 GB), 64 on a GPU.
AT_ONCE = {"cpu": 8 * 256**2, "cuda": 64 * 256**2}
PIXEL_BYTES = 4096  # that a GPU has in use for each of them
# Products of the decoder on a type of device, as provenance says (fp32 without). tf32 moves a pixel
# by one level at most, bf16 moved some by 15.
DECODING = {"cuda": "tf32"}
PixelRange = Literal["signed", "unit"]  # -1..1 as SD's own code feeds it, 0..1 as EDM2's does


class Autoencoder:
    """Decodes the network's values (latents times `scale`) or, with normalized channels, stored
    values.

    Weights are loaded when first needed, from safetensors only, and stay in fp32.

    Args:
        where: local folder or hub id, such as `stabilityai/sd-vae-ft-ema`.
        scale: divisor before decoding (0.18215 for SD); `None` for raw latents.
        range: pixel range of its training images.

    Attributes:
        compiled: set before the first call, whether the decoder is compiled; a pixel may then
            differ by a level.

    Raises:
        UserError: diffusers is not installed; when decoding: missing weights.
    """

    compiled = False

    def __init__(self, where: str, *, scale: float | None, range: PixelRange = "signed") -> None:
        _check(where)
        self._where = where
        self._scale = scale
        self._range = range

    @functools.cached_property
    def _model(self) -> Any:
        model = _load(self._where)
        self._compare_scale(model.config)
        if self.compiled:
            model.decoder.compile(dynamic=False)
        return model

    @property
    def digest(self) -> str:
        """Digest of decoder weights, scale and range, 16 hexadecimal digits."""
        return hashed([weights_digest(self._where), repr(self._scale), self._range])

    @property
    def enlarges(self) -> int | None:
        """Ratio of image side to latent side, from the config of a local folder."""
        config = read_json(Path(self._where) / "config.json")
        return None if config is None else _zoom(config)

    def __call__(self, x_BCHW: Tensor) -> Tensor:
        """uint8 images [B, 3, 8H, 8W] of latents in model space, on the device of `x_BCHW`."""
        return torch.cat([LEVELS[self._range](part) for part in self._decoded(x_BCHW)])

    def signed(self, x_BCHW: Tensor) -> Tensor:
        """The decoded values before rounding, in -1..1 for images."""
        image_BCHW = torch.cat([*self._decoded(x_BCHW)])
        return image_BCHW if self._range == "signed" else 2 * image_BCHW - 1

    @torch.inference_mode()
    def _decoded(self, x_BCHW: Tensor) -> Iterator[Tensor]:
        model = self._model.to(x_BCHW.device)
        channels = model.config.latent_channels
        if x_BCHW.shape[1] != channels:
            found = f"decodes {channels} channels, the data have {x_BCHW.shape[1]}"
            raise UserError(f"autoencoder {self._where!r} {found}")
        pixels = x_BCHW[0, 0].numel() * _zoom(model.config) ** 2
        size = images_at_once(x_BCHW.device, pixels)
        for z_BCHW in torch.split(x_BCHW.float() / (self._scale or 1.0), size):
            yield model.decode(z_BCHW).sample

    def _compare_scale(self, config: Any) -> None:
        """Warn where the autoencoder's own file says another factor than the data's spec."""
        own = config.get("scaling_factor")
        if own and self._scale and not math.isclose(own, self._scale, rel_tol=0.01):
            warnings.warn(
                f"data.decoder_scale: must equal the factor {own:g} of the autoencoder "
                f"{self._where!r}, got {self._scale:g}",
                stacklevel=3,
            )


def images_at_once(device: torch.device, pixels: int) -> int:
    """Return the number of images per decoder call, by their pixels.

    On a GPU they use at most half of the free memory. The number is a power of two, so that few
    sizes are compiled.
    """
    most = AT_ONCE.get(device.type, AT_ONCE["cpu"]) // pixels
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + cached
        most = min(most, free // (2 * PIXEL_BYTES * pixels))
        most = 1 << max(0, most.bit_length() - 1)
    return max(1, most)


class Encoder:
    """Encodes images: diffusers' AutoencoderKL in fp32, loaded at once.

    Attributes:
        digest: of its weights, 16 hexadecimal digits.
        channels: C of a latent.
        zoom: ratio of image side to latent side.
        scale, shift: `scaling_factor` and `shift_factor` of its config, or `None`: its authors
            train on (latent - shift) * scale. Not applied here.

    Args:
        where: local folder or hub id.
        range: pixel range of its input.

    Raises:
        UserError: diffusers or the autoencoder is missing.
    """

    def __init__(self, where: str, *, range: PixelRange = "signed") -> None:
        _check(where)
        self.range = range
        self._model = _load(where)
        config = self._model.config
        self.name = Path(where).name if Path(where).is_dir() else where
        self.digest = weights_digest(where)
        self.channels = int(config.latent_channels)
        self.zoom = _zoom(config)
        self.scale: float | None = config.get("scaling_factor")
        self.shift: float | None = config.get("shift_factor")

    def on(self, device: torch.device) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """Return a function from uint8 images [B, 3, H, W] to mean and log-variance of the
        posterior [B, C, h, w], with a copy of the weights on `device`."""
        model = copy.deepcopy(self._model).to(device)

        @torch.inference_mode()
        def moments(image_BCHW: Tensor) -> tuple[Tensor, Tensor]:
            x_BCHW = FED[self.range](image_BCHW.to(device).float())
            posterior = model.encode(x_BCHW).latent_dist
            return posterior.mean, posterior.logvar

        return moments


def _zoom(config: Mapping[str, Any]) -> int:
    return int(2 ** (len(config["block_out_channels"]) - 1))


def levels(image_BCHW: Tensor) -> Tensor:
    """[-1, 1] -> the nearest of 0..255, as DiT does: x -> floor(127.5 x + 128)."""
    return (127.5 * image_BCHW + 128).clamp(0, 255).to(torch.uint8)


LEVELS: Mapping[PixelRange, Callable[[Tensor], Tensor]] = {
    "signed": levels,
    "unit": lambda image_BCHW: (255 * image_BCHW.clamp(0, 1)).to(torch.uint8),  # as EDM2 does
}
FED: Mapping[PixelRange, Callable[[Tensor], Tensor]] = {  # 0..255 -> what the encoder is fed
    "signed": lambda image_BCHW: image_BCHW / 127.5 - 1,
    "unit": lambda image_BCHW: image_BCHW / 255,
}


def open_autoencoder(*, scale: float | None, range: PixelRange = "signed") -> Autoencoder | None:
    """Return the autoencoder in TREAD_LAB_AUTOENCODER; `None` without it."""
    where = os.environ.get(VARIABLE)
    return Autoencoder(where, scale=scale, range=range) if where else None


def _check(where: str) -> None:
    """Refuse what cannot be loaded, without loading it."""
    if importlib.util.find_spec("diffusers") is None:
        raise UserError(
            f"autoencoder: {where} requires the package diffusers. Try `pip install"
            " 'tread-lab[latents]'`."
        )
    folder = Path(where)
    if (folder.is_absolute() or folder.is_dir()) and not (folder / "config.json").exists():
        raise UserError(f"autoencoder: {where} must contain config.json. Try its folder or hub ID.")


def weights_digest(where: str) -> str:
    """Return a digest of the weights in a folder; for a hub ID, the ID."""
    files = sorted(Path(where).glob("*.safetensors"))
    return hashed(map(sha256, files) if files else [where])


def _load(where: str) -> Any:
    from diffusers import AutoencoderKL

    try:
        kind = AutoencoderKL.load_config(where).get("_class_name", "AutoencoderKL")
        if kind != "AutoencoderKL":
            raise UserError(f"autoencoder {where!r} is a {kind}, not an AutoencoderKL")
        return AutoencoderKL.from_pretrained(where, use_safetensors=True).eval()
    except (OSError, ValueError) as error:
        raise UserError(f"autoencoder {where!r} cannot be loaded: {first_line(error)}") from None
