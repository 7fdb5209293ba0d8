"""The small classifier whose features stand in for Inception's on the embedded images."""

# B batch, C channels, H height, W width, D features, K classes

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

WIDTHS = (32, 64, 64, 128)
STRIDES = (1, 2, 1, 2)


class Extractor(nn.Module):
    """Four 3x3 convolutions and a mean over places; the logits exist to train it.

    A Frechet distance in its features is comparable only within its own data set, weights and
    number of samples, which is why the metric's name carries them, and it is never called FID.
    """

    def __init__(self, *, channels: int = 1, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width, stride in zip(WIDTHS, STRIDES, strict=True):
            layers += [
                nn.Conv2d(channels, width, 3, stride, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
            channels = width
        self.convolutions = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, images_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Return features [B, D] and class logits [B, K] of uint8 images."""
        assert images_BCHW.dtype == torch.uint8
        x_BDHW = self.convolutions(images_BCHW.float() / 127.5 - 1)
        features_BD = x_BDHW.mean(dim=(2, 3))
        return features_BD, self.head(features_BD)


def weights_path(name: str) -> Path:
    """Return where the weights of the shipped extractor `name` lie."""
    return Path(str(files("tread_lab.evaluate") / "assets" / f"{name}.safetensors"))


def load_extractor(name: str) -> Extractor:
    """Return the shipped extractor `name`, ready to use."""
    model = Extractor()
    model.load_state_dict(load_file(weights_path(name)))
    return model.eval().requires_grad_(False)
