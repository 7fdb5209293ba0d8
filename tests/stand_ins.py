"""Random stand-ins of the right layout for files that users bring."""

# N, B images, C channels, H height, W width

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from tread_lab.config.data import SD_DEVIATION, SD_SCALE
from tread_lab.data.arrays import write_npz
from tread_lab.data.autoencoder import FED
from tread_lab.data.images import centre_crop
from tread_lab.evaluate.fidelity import LAYERS
from tread_lab.evaluate.references import FEWEST, IMAGES

SCALE = 1.7  # brings the small autoencoder's latents, posterior included, near a deviation of 1
COUNT = 120  # images, of which a reference has the fewest that it may
SIDE = 256
SMALL = {"intermediate_size": 16, "num_hidden_layers": 1}


def _new_autoencoder(*, stages: int, scale: float, width: int = 8) -> Any:
    """Return a narrow AutoencoderKL with random weights: 4 channels, sides halved `stages` - 1
    times."""
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * stages,
        up_block_types=("UpDecoderBlock2D",) * stages,
        block_out_channels=(width,) * stages,
        norm_num_groups=4,
        scaling_factor=scale,
    )


def write_images(folder: Path, count: int) -> None:
    """Write PNG images of 20 to 90 pixels a side in three classes, each with its own colour."""
    rng = np.random.default_rng(0)
    for k in range(count):
        height, width = rng.integers(20, 90, 2)
        levels = rng.integers(0, 96, (height, width, 3), np.uint8)
        levels[..., k % 3] += 128
        path = folder / f"n{k % 3:08d}" / f"n{k % 3:08d}_{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(levels).save(path)


def write_autoencoder(folder: Path, seed: int = 0) -> None:
    """Write a random AutoencoderKL of diffusers: 4 channels, sides halved, factor `SCALE`."""
    torch.manual_seed(seed)
    _new_autoencoder(stages=2, scale=SCALE).save_pretrained(folder)


def _write_sd_autoencoder(folder: Path, crops_NHWC: NDArray[np.uint8]) -> None:
    """Write a random one with SD's shapes, an eighth of the sides, and SD's scale: latents of these
    images get the deviation that those of photographs have."""
    torch.manual_seed(0)
    model = _new_autoencoder(stages=4, scale=SD_SCALE, width=4)
    image_BCHW = torch.from_numpy(crops_NHWC[:8]).permute(0, 3, 1, 2)
    with torch.no_grad():
        deviation = model.encode(FED["signed"](image_BCHW.float())).latent_dist.mean.std()
        factor = SD_DEVIATION / SD_SCALE / deviation
        for parameter in (model.quant_conv.weight, model.quant_conv.bias):
            parameter[: len(parameter) // 2] *= factor  # of the mean
        model.post_quant_conv.weight /= factor
    model.save_pretrained(folder)


def write_text_encoder(folder: Path, width: int = 512) -> None:
    """Write a random text encoder of a CLIP with one layer, and a tokenizer of single letters."""
    import transformers
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    places = {"max_position_embeddings": 77, "num_attention_heads": 2}
    ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    shape = {"vocab_size": len(names), "hidden_size": width, **SMALL, **places, **ends}
    CLIPTextModel(CLIPTextConfig(**shape)).save_pretrained(folder)
    vocabulary = {token: number for number, token in enumerate(names)}
    CLIPTokenizer(vocab=vocabulary, merges=[]).save_pretrained(folder)


def write_stand_ins(folder: Path) -> dict[str, Path]:
    """Write an autoencoder, a reference and Inception; return the variable that names each."""
    made = {
        "TREAD_LAB_AUTOENCODER": folder / "autoencoder",
        "TREAD_LAB_REFERENCES": folder / "reference",
        "TREAD_LAB_INCEPTION": folder / "inception.pth",
    }
    write_images(folder / "images", COUNT)
    crops_NHWC = _crops(folder / "images")
    _write_sd_autoencoder(made["TREAD_LAB_AUTOENCODER"], crops_NHWC)
    made["TREAD_LAB_REFERENCES"].mkdir()
    images = {IMAGES: (crops_NHWC.shape, np.uint8, [crops_NHWC])}
    write_npz(made["TREAD_LAB_REFERENCES"] / "imagenet256.npz", images)
    torch.save(random_inception().state_dict(), made["TREAD_LAB_INCEPTION"])
    return made


def _crops(folder: Path) -> NDArray[np.uint8]:
    paths = sorted(folder.rglob("*.png"))[:FEWEST]
    return np.stack([centre_crop(Image.open(path), SIDE) for path in paths])


def random_inception() -> Any:
    """Return Inception-2015 with random numbers, always the same, that keep their scale."""
    from torch_fidelity import feature_extractor_inceptionv3 as theirs

    network = theirs.FeatureExtractorInceptionV3
    with (
        mock.patch.object(theirs, "load_state_dict_from_url", lambda *_, **__: {}),
        mock.patch.object(network, "load_state_dict", lambda *_: None),
        torch.random.fork_rng(devices=[]),
    ):
        torch.manual_seed(0)
        made = network("inception-v3-compat", [*LAYERS.values()])
        for module in made.modules():  # the default shrinks what it is given at every layer
            if isinstance(module, torch.nn.Conv2d):
                torch.nn.init.kaiming_normal_(module.weight)
    return made
