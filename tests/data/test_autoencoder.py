"""Latents to images: the formula, the remedies, and a small real autoencoder where installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.conftest import opened
from tests.stand_ins import SCALE, write_autoencoder
from tread_lab.config import UserError
from tread_lab.data import autoencoder
from tread_lab.data.autoencoder import VARIABLE, Encoder, images_at_once, levels
from tread_lab.data.source import image_shape


def test_levels_are_nearest_and_clamped() -> None:
    image = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])
    assert levels(image).tolist() == [0, 0, 128, 255, 255]
    steps = torch.arange(256)
    assert torch.equal(levels((steps + 0.49) / 127.5 - 1), steps.to(torch.uint8))
    assert torch.equal(levels((steps - 0.49) / 127.5 - 1), steps.to(torch.uint8))


@pytest.mark.parametrize(
    ("free", "cached", "images"), [(100, 0, 64), (20, 0, 32), (3, 2, 8), (0.3, 0, 1), (0, 0, 1)]
)
def test_decoding_fits_free_memory(
    free: float, cached: float, images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In GiB; 64 images of 256x256 take 16."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(free * 2**30), 2**37))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: int(cached * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    assert images_at_once(torch.device("cuda"), 256**2) == images


def test_range_decides_fed_and_decoded_pixels(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("diffusers")
    write_autoencoder(tmp_path / "vae")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "vae"))
    signed, of_unit = (
        opened("latents", packed, scale=SCALE, decoder_range=pixels)
        for pixels in ("signed", "unit")
    )
    x_BCHW, _ = signed.take(torch.arange(3))
    raw_BCHW = signed.decoded(x_BCHW)
    assert torch.equal(of_unit.decoded(x_BCHW), 2 * raw_BCHW - 1)
    assert torch.equal(signed.pixels(x_BCHW), levels(raw_BCHW))
    assert torch.equal(of_unit.pixels(x_BCHW), (raw_BCHW.clamp(0, 1) * 255).to(torch.uint8))
    monkeypatch.setitem(autoencoder.AT_ONCE, "cpu", 1)
    assert torch.allclose(signed.decoded(x_BCHW), raw_BCHW, atol=1e-5)
    assert signed.decoder != of_unit.decoder and image_shape(signed) == (3, 16, 16)
    with monkeypatch.context() as patch:
        patch.setattr(autoencoder, "_load", lambda where: pytest.fail("read again"))
        assert opened("latents", packed, scale=SCALE).decoder == signed.decoder
    images_BCHW = torch.arange(2 * 3 * 16 * 16).reshape(2, 3, 16, 16).remainder(256)
    encoder = Encoder(str(tmp_path / "vae"), range="unit")
    mean_BCHW, _ = encoder.on(torch.device("cpu"))(images_BCHW.to(torch.uint8))
    expected = encoder._model.encode(images_BCHW / 255).latent_dist.mean
    assert torch.equal(mean_BCHW, expected)


@pytest.mark.long
@pytest.mark.slow
def test_compiled_decoder_equals_the_eager_one(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("diffusers")
    write_autoencoder(tmp_path / "vae")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "vae"))
    monkeypatch.setattr("torch._inductor.config.compile_threads", 1)
    eager, compiled = (opened("latents", packed, scale=SCALE) for _ in range(2))
    compiled.compile_decoder()
    x_BCHW, _ = eager.take(torch.arange(4))
    assert torch.allclose(compiled.decoded(x_BCHW), eager.decoded(x_BCHW), atol=1e-5)
    assert (compiled.pixels(x_BCHW).int() - eager.pixels(x_BCHW).int()).abs().max() <= 1


def test_a_small_autoencoder_decodes_stored_latents(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    model = diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(8, 8),
        norm_num_groups=4,
        shift_factor=0.0625,
    ).eval()
    model.save_pretrained(tmp_path / "vae")
    encoder = Encoder(str(tmp_path / "vae"))
    assert (encoder.scale, encoder.shift) == (0.18215, 0.0625)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "vae"))
    samples = opened("latents", packed, scale=0.18215)
    x_BCHW, _ = samples.take(torch.arange(20))
    stored_BCHW = torch.from_numpy(np.load(packed / "latents.npy")[:20].astype(np.float32))
    with torch.no_grad():
        expected_BCHW = levels(model.decode(stored_BCHW[:3]).sample)
    shown_BCHW = samples.pixels(x_BCHW)
    assert not samples.preview and shown_BCHW.shape == (20, 3, 16, 16)
    off = (shown_BCHW[:3].int() - expected_BCHW.int()).abs()
    assert off.max() <= 1 and off.float().mean() < 0.01
    with torch.no_grad():
        model.quant_conv.weight += 1
    model.save_pretrained(tmp_path / "other")
    assert Encoder(str(tmp_path / "other")).digest != Encoder(str(tmp_path / "vae")).digest
    other = opened("latents", packed, scale=0.18215, decoder_scale=1)
    with pytest.warns(UserWarning, match=r"must equal the factor 0\.18215 of .*, got 1"):
        other.pixels(x_BCHW)
    with pytest.raises(UserError, match=r"vae' decodes 4 channels, the data have 3$"):
        samples.pixels(x_BCHW[:, :3])
    with pytest.raises(UserError, match="cannot be loaded"):
        (tmp_path / "vae" / "diffusion_pytorch_model.safetensors").unlink()
        opened("latents", packed, scale=0.18215).pixels(x_BCHW)
