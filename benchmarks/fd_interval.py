"""Is the standard error of an FD as large as its spread over fresh images?

    python benchmarks/fd_interval.py [--draws 60]

Two "networks" return training images of `fashion16`: one with pixel noise, one blurred as well. FD
is of the shipped features (D = 128) against the held-out images. For sets of N images, drawn anew,
the deviation of the FD and of the paired difference is printed beside the standard error by the
infinitesimal jackknife (root mean square), and how often its 95% interval holds the mean of all.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from tread_lab.config import DataSpec
from tread_lab.data import open_data
from tread_lab.data.stored import Split
from tread_lab.evaluate.extraction import load_extractor
from tread_lab.evaluate.formulas import frechet_distance, frechet_influences

NOISE = 20.0  # of 255


def features(images_NCHW: Tensor) -> Tensor:
    """Return the features [N, D] of images from 0 to 255."""
    model = load_extractor("fashion16-v1")
    batches = images_NCHW.round().clamp(0, 255).to(torch.uint8).split(1000)
    return torch.cat([model(batch)[0] for batch in batches]).double()


def pixels(split: Split) -> Tensor:
    """Return all images of a split, [N, 1, 16, 16]."""
    samples = open_data(DataSpec(), split)
    return samples.pixels(samples.take(torch.arange(len(samples)))[0]).float()


def main() -> None:
    """Draw, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=60)
    options = parser.parse_args()
    train = pixels("train")
    noisy = train + NOISE * torch.randn(train.shape, generator=torch.Generator().manual_seed(0))
    blurred = (noisy + avg_pool2d(noisy, 3, stride=1, padding=1)) / 2
    real = features(pixels("heldout"))
    networks, reference = [features(noisy), features(blurred)], (real.mean(dim=0), real.T.cov())
    order = torch.Generator().manual_seed(1)
    for count in (256, 512, 1024, 2048):
        found, errors = [], []
        for _ in range(options.draws):
            rows = torch.randperm(len(train), generator=order)[:count]
            one, other = (measured(reference, x_ND[rows]) for x_ND in networks)
            influences = (one[1], other[1], other[1] - one[1])
            found.append((one[0], other[0], other[0] - one[0]))
            errors.append([float(x_N.std() / count**0.5) for x_N in influences])
        value, error = np.array(found), np.array(errors)
        inside = np.abs(value - value.mean(axis=0)) < 1.96 * error
        for k, name in enumerate(("noisy", "blurred", "difference")):
            print(
                f"{count} images, {name}: FD {value[:, k].mean():.3f}, spread"
                f" {value[:, k].std(ddof=1):.3f}, standard error"
                f" {np.sqrt((error[:, k] ** 2).mean()):.3f}, covers {inside[:, k].mean():.0%}"
            )


def measured(reference: tuple[Tensor, Tensor], x_ND: Tensor) -> tuple[float, Tensor]:
    """Return the FD of features and the influence of each image."""
    own = x_ND.mean(dim=0), x_ND.T.cov()
    distance, gradient_DD = frechet_distance(reference, own)
    return distance, frechet_influences(reference, own, gradient_DD, x_ND)


if __name__ == "__main__":
    main()
