"""What the sampler draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tread_lab.config import EDMSpec, SamplerSpec
from tread_lab.diffusion import EDM, Process
from tread_lab.diffusion.generate import generate
from tread_lab.diffusion.guided import Denoiser


def drawn(
    network: Denoiser | Mapping[int | None, Denoiser],
    sampler: SamplerSpec,
    count: int,
    *,
    process: Process | None = None,
    shape: tuple[int, int, int] = (1, 4, 4),
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """Images and labels, of ten classes, by one network or by several for their steps."""
    networks = network if isinstance(network, Mapping) else {None: network}
    more = {"classes": 10, "device": torch.device("cpu"), **options}
    process = process or EDM(EDMSpec())
    x, y = zip(*generate(networks, process, sampler, count=count, shape=shape, **more))
    return torch.cat(x), torch.cat(y)
