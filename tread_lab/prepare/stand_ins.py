"""Made stand-ins of the right layout for files that users bring: images, networks, references."""

# N, B images, C channels, H height, W width

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from tread_lab.data.autoencoder import FED, new_autoencoder
from tread_lab.data.npy import write_npz
from tread_lab.metrics.fidelity import STAND_IN, STAND_IN_FILE
from tread_lab.metrics.pretrained import new_network, new_tokenizer
from tread_lab.metrics.reference_file import FEWEST, IMAGES
from tread_lab.prepare.images import centre_crop
from tread_lab.prepare.required_files import REQUIRED
from tread_lab.records.durable import writing
from tread_lab.specs.data import SD_DEVIATION, SD_SCALE
from tread_lab.specs.errors import UserError

SCALE = 1.7  # brings the small autoencoder's latents, posterior included, near a deviation of 1
COUNT = 120  # images, of which a reference has the fewest that it may
SIDE = 256
DINOV2 = {"hidden_size": 768, "num_attention_heads": 12, "patch_size": 14, "image_size": 518}
SMALL = {"intermediate_size": 16, "num_hidden_layers": 1}


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
    new_autoencoder(stages=2, scale=SCALE).save_pretrained(folder)


def _write_sd_autoencoder(folder: Path, crops_NHWC: NDArray[np.uint8]) -> None:
    """Write a random one with SD's shapes, an eighth of the sides, and SD's scale: latents of these
    images get the deviation that those of photographs have."""
    torch.manual_seed(0)
    model = new_autoencoder(stages=4, scale=SD_SCALE, width=4)
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
    torch.manual_seed(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    places = {"max_position_embeddings": 77, "num_attention_heads": 2}
    ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    shape = {"vocab_size": len(names), "hidden_size": width, **SMALL, **places, **ends}
    new_network("CLIPTextModel", **shape).save_pretrained(folder)
    new_tokenizer("CLIPTokenizer", names).save_pretrained(folder)


def write_stand_ins(folder: Path) -> Iterator[tuple[str, Path]]:
    """Write stand-ins into an empty folder; yield the variable that names each, or the file.

    DINOv2 large has none: nothing could tell its `fd_dinov2` from a real one.

    Raises:
        UserError: the folder holds something, or cannot be written.
    """
    folder = folder.absolute()
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"--stand-ins: {folder} is not empty; name a new folder")
    with writing(folder, ""):
        write_images(folder / "images", COUNT)
        yield "images", folder / "images"
        crops_NHWC = _crops(folder / "images")
        for file, write in _WRITERS.items():
            path = folder / file.replace(" ", "-")
            path.mkdir()
            write(path, crops_NHWC)
            mark = path / STAND_IN_FILE
            mark.write_text(STAND_IN)
            yield REQUIRED[file].named_by, mark if file == "Inception-2015" else path


def _crops(folder: Path) -> NDArray[np.uint8]:
    paths = sorted(folder.rglob("*.png"))[:FEWEST]
    return np.stack([centre_crop(Image.open(path), SIDE) for path in paths])


def _write_reference(folder: Path, crops_NHWC: NDArray[np.uint8]) -> None:
    """Write images alone: moments would be those of random features."""
    images = {IMAGES: (crops_NHWC.shape, np.uint8, [crops_NHWC])}
    write_npz(folder / "imagenet256.npz", images)


def _write_dinov2(folder: Path) -> None:
    torch.manual_seed(0)
    new_network("Dinov2Model", **DINOV2, **SMALL).save_pretrained(folder)


_WRITERS: Mapping[str, Callable[[Path, NDArray[np.uint8]], None]] = {
    "autoencoder": _write_sd_autoencoder,
    "Inception-2015": lambda folder, crops_NHWC: None,  # its mark is all of it
    "reference": _write_reference,
    "DINOv2 base": lambda folder, crops_NHWC: _write_dinov2(folder),
    "CLIP text encoder": lambda folder, crops_NHWC: write_text_encoder(folder, width=768),
}


def walk(folder: Path, made: dict[str, Path]) -> list[str]:
    """Return the commands that go from the stand-ins to a measured run, in an empty lab."""
    quoted = {name: shlex.quote(str(path)) for name, path in made.items()}
    images, latents = quoted.pop("images"), shlex.quote(str(folder.absolute() / "latents"))
    lab = shlex.quote(str(folder.absolute() / "lab"))
    small = "model=DiT-4x64/2 precision=fp32 train.steps=20 train.batch=8 train.ema=0.5"
    few = "sampler.steps=2 sampler.precision=fp32 'evaluate=[fid@100]'"
    return [
        *(f"export {variable}={path}" for variable, path in quoted.items()),
        f"export TREAD_LAB_ROOT={lab}",
        f"tread-lab data encode {images} {latents} --autoencoder {quoted[_AUTOENCODER]}",
        f"tread-lab data verify {latents}",
        f'tread-lab train s2_imagenet256 --route "1->2" data.path={latents} {small} {few}',
        "tread-lab doctor",
    ]


_AUTOENCODER = REQUIRED["autoencoder"].named_by
