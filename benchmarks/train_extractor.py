"""Makes the feature extractor of the embedded images that the package ships.

    python benchmarks/train_extractor.py [--out FILE] [--epochs 24] [--seed 0]

Three minutes on one core; the same weights again on one machine.
"""

# B batch, C channels, H height, W width

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from tread_lab.config import DataSpec
from tread_lab.data import Samples, open_data
from tread_lab.draws import generator, permutation
from tread_lab.evaluate.extraction import Extractor, weights_path
from tread_lab.records.durable import replacing

NAME = "fashion16-v1"
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 0.05
WARMUP = 0.1  # share of the steps


def train(samples: Samples, *, epochs: int, batch: int = 128, seed: int = 0) -> Extractor:
    """Return an extractor trained to tell the classes of `samples`; equal arguments, equal weights.

    Equal to the bit on one machine and one thread; images are shifted by up to one pixel.
    """
    images_NCHW, labels_N = everything(samples)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Extractor(channels=samples.shape[0], classes=samples.classes).train()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=WEIGHT_DECAY)
    steps = epochs * (len(samples) // batch)
    for step in range(steps):
        epoch, place = divmod(step, len(samples) // batch)
        if place == 0:
            order_N = permutation(len(samples), "extractor", seed, epoch)
        ids_B = order_N[place * batch : (place + 1) * batch]
        _set_rate(optimizer, progress=(step + 1) / steps)
        shifted_BCHW = _shift(images_NCHW[ids_B], generator("extractor shift", seed, step))
        loss = F.cross_entropy(model(shifted_BCHW)[1], labels_N[ids_B])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return model.eval()


def everything(samples: Samples) -> tuple[Tensor, Tensor]:
    """Return all images [N, C, H, W] as uint8 and their labels [N]."""
    x_NCHW, labels_N = samples.take(torch.arange(len(samples)))
    return samples.pixels(x_NCHW), labels_N


@torch.inference_mode()
def accuracy(model: Extractor, samples: Samples) -> float:
    """Return the share of `samples` whose class the model names."""
    images_NCHW, labels_N = everything(samples)
    logits_NK = torch.cat([model(images_BCHW)[1] for images_BCHW in torch.split(images_NCHW, 500)])
    return float((logits_NK.argmax(1) == labels_N).float().mean())


def _set_rate(optimizer: torch.optim.Optimizer, progress: float) -> None:
    """Linear warm-up, then a half cosine to zero."""
    past = max(0.0, progress - WARMUP) / (1 - WARMUP)
    scale = min(progress / WARMUP, 1.0) * 0.5 * (1 + math.cos(math.pi * past))
    for group in optimizer.param_groups:
        group["lr"] = LEARNING_RATE * scale


def _shift(images_BCHW: Tensor, rng: torch.Generator) -> Tensor:
    """Return the batch moved by -1, 0 or 1 pixels along both axes, the border filled with zeros."""
    down, right = (torch.randint(0, 3, (2,), generator=rng)).tolist()
    height, width = images_BCHW.shape[-2:]
    padded = F.pad(images_BCHW, (1, 1, 1, 1))
    return padded[..., down : down + height, right : right + width]


def main() -> None:
    """Train on all embedded training images and write the shipped weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=weights_path(NAME))
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order: the same weights again
    train_set, heldout = (open_data(DataSpec(), split) for split in ("train", "heldout"))
    model = train(train_set, epochs=options.epochs, seed=options.seed)
    facts = {
        "accuracy": f"{accuracy(model, heldout):.4f}",
        "epochs": str(options.epochs),
        "seed": str(options.seed),
        "data": train_set.fingerprint,
        "torch": torch.__version__,
    }
    with replacing(options.out) as temporary:
        save_file(model.state_dict(), temporary, metadata=facts)
    print(f"{options.out}: {facts}")


if __name__ == "__main__":
    main()
