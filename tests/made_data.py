"""Images and a small autoencoder that tests make for themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from tread_lab.data.captions import write_captions

SCALE = 1.7  # brings the small autoencoder's latents, posterior included, near a deviation of 1


def write_images(folder: Path, count: int) -> None:
    """PNG images of 20 to 90 pixels a side in three classes, each class with its own colour."""
    rng = np.random.default_rng(0)
    for k in range(count):
        height, width = rng.integers(20, 90, 2)
        levels = rng.integers(0, 96, (height, width, 3), np.uint8)
        levels[..., k % 3] += 128
        path = folder / f"n{k % 3:08d}" / f"n{k % 3:08d}_{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(levels).save(path)


def write_autoencoder(folder: Path, seed: int = 0) -> None:
    """A random AutoencoderKL of diffusers: 4 channels, sides halved, factor `SCALE`."""
    from diffusers import AutoencoderKL

    torch.manual_seed(seed)
    AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(8, 8),
        norm_num_groups=4,
        scaling_factor=SCALE,
    ).save_pretrained(folder)


def write_text_encoder(folder: Path, width: int = 512, positions: int = 77) -> None:
    """A random text encoder of a CLIP with one layer, and a tokenizer of single letters."""
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    torch.manual_seed(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    tokenizer = CLIPTokenizer(vocab={name: k for k, name in enumerate(names)}, merges=[])
    shape = {"hidden_size": width, "intermediate_size": 16, "num_hidden_layers": 1}
    ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    config = CLIPTextConfig(
        vocab_size=len(names),
        max_position_embeddings=positions,
        num_attention_heads=2,
        **shape,
        **ends,
    )
    CLIPTextModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_captioned(folder: Path, count: int, *, each: int = 2) -> None:
    """Random latents 4x8x8 of deviation 1 with `each` captions, packed as `data encode` does."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "latents.npy", rng.normal(size=(count, 4, 8, 8)).astype(np.float16))
    np.save(folder / "labels.npy", np.zeros(count, np.int64))
    write_captions(
        folder / "captions.jsonl",
        [[f"{_word(k)} {_word(7 * k + c)}" for c in range(each)] for k in range(count)],
    )


def _word(number: int) -> str:
    """Three letters that differ for the first 17,576 numbers."""
    return "".join(chr(ord("a") + number // 26**place % 26) for place in range(3))
