"""Frozen networks of transformers; FD-DINOv2 against references of its own in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.evaluate.conftest import score
from tests.stand_ins import write_text_encoder
from tread_lab.config import UserError
from tread_lab.evaluate.extraction import Extraction
from tread_lab.evaluate.pretrained import (
    load_pretrained,
    offset_positions,
    weights_digest,
)

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random DINOv2 of ViT-L's width with one block and the published grid of 37 x 37."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    shape = {"hidden_size": 1024, "num_hidden_layers": 1, "num_attention_heads": 16, "mlp_ratio": 1}
    folder = tmp_path_factory.mktemp("dinov2")
    config = transformers.Dinov2Config(**shape, patch_size=14, image_size=518)
    transformers.Dinov2Model(config).save_pretrained(folder)
    return folder


def images(count: int, seed: int) -> Tensor:
    """Blotches of colour, uint8 [count, 3, 20, 28]."""
    rng = np.random.default_rng(seed)
    coarse = torch.from_numpy(rng.integers(0, 256, (count, 3, 5, 7)).astype(np.uint8))
    return coarse.repeat_interleave(4, dim=2).repeat_interleave(4, dim=3)


def enlarged(image_CHW: Tensor) -> NDArray[np.float64]:
    picture = Image.fromarray(image_CHW.permute(1, 2, 0).numpy())
    pixels = np.asarray(picture.resize((224, 224), Image.Resampling.BICUBIC))
    return pixels.transpose(2, 0, 1).astype(np.float64)


def described(folder: Path, pictures: Tensor) -> NDArray[np.float64]:
    """Class tokens in float64, of images that Pillow resizes."""
    from transformers import Dinov2Model

    model = Dinov2Model.from_pretrained(folder).double().eval()
    table = offset_positions(model.embeddings.position_embeddings.detach(), 16)
    model.embeddings.position_embeddings = torch.nn.Parameter(table.double())
    x = np.stack([enlarged(image) for image in pictures]) / 255
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    x = (x - mean[:, None, None]) / deviation[:, None, None]
    with torch.no_grad():
        tokens: NDArray[np.float64] = model(torch.from_numpy(x)).last_hidden_state[:, 0].numpy()
    return tokens


def distance(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """|m - m'|^2 + tr C + tr C' - 2 tr (C C')^(1/2); the last by the singular values of X Y^T."""
    mean = ((x.mean(0) - y.mean(0)) ** 2).sum()
    x, y = ((z - z.mean(0)) / np.sqrt(len(z) - 1) for z in (x, y))
    root = np.linalg.svd(x @ y.T, compute_uv=False).sum()
    return float(mean + (x**2).sum() + (y**2).sum() - 2 * root)


def test_fd_dinov2_is_that_of_float64(dinov2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREAD_LAB_DINOV2", str(dinov2))
    drawn, real = images(3, 0), images(2, 1)
    extraction = Extraction("dinov2-large", device=CPU)
    ours = [extraction(pictures)["pool"].double().numpy() for pictures in (drawn, real)]
    apart = [described(dinov2, pictures) for pictures in (drawn, real)]
    for own, other in zip(ours, apart):
        assert own.shape[1] == 1024
        np.testing.assert_allclose(own, other, atol=2e-2)
    grey = drawn[:, :1]
    three = extraction(grey.expand(-1, 3, -1, -1))["pool"]
    assert torch.allclose(extraction(grey)["pool"], three, atol=1e-5)
    metrics = ["fd_dinov2"]
    found = score(drawn, real, metrics=metrics, extractor="dinov2-large")
    assert list(found) == ["fd_dinov2[heldout]@3"]
    (value,) = found.values()
    # Of 1,024 dimensions two have a variance: roots of rounding errors stand in all others.
    assert value == pytest.approx(distance(*ours), rel=1e-5)
    assert value == pytest.approx(distance(*apart), rel=1e-3)


def _bicubic(at: float) -> float:
    """The values 0, 1, 2, ... at a place between them."""

    def weight(x: float) -> float:
        x, a = abs(x), -0.75
        near = (a + 2) * x**3 - (a + 3) * x**2 + 1
        return near if x <= 1 else a * (x**3 - 5 * x**2 + 8 * x - 4)

    return sum(weight(at - k) * k for k in range(int(at) - 1, int(at) + 3))


def test_positions_have_the_published_offset() -> None:
    """Rows and columns of a table that holds them, by the bicubic kernel (a = -3/4) at the places
    (k + 1/2) 37 / 16.1 - 1/2."""
    rows, columns = torch.meshgrid(torch.arange(37.0), torch.arange(37.0), indexing="ij")
    table = torch.stack([rows.flatten(), columns.flatten()], dim=1)
    found = offset_positions(torch.cat([torch.full((1, 2), -5.0), table])[None], 16)
    whole = torch.cat([torch.full((1, 2), -5.0), table])[None]
    assert torch.equal(offset_positions(whole, 37), whole)  # a grid of its own size stays
    assert found.shape == (1, 257, 2) and found[0, 0].tolist() == [-5, -5]
    place = torch.tensor([_bicubic((k + 0.5) * 37 / 16.1 - 0.5) for k in range(1, 15)])
    grid = found[0, 1:].view(16, 16, 2)[1:15, 1:15]
    torch.testing.assert_close(grid[..., 0], place[:, None].expand(14, 14), atol=1e-4, rtol=0)
    torch.testing.assert_close(grid[..., 1], place.expand(14, 14), atol=1e-4, rtol=0)


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    pytest.importorskip("transformers")
    write_text_encoder(tmp_path, width=16)
    return tmp_path


def rewrite(folder: Path, **changes: torch.Tensor | None) -> None:
    """Replace weights of a folder, or leave them out."""
    file = folder / "model.safetensors"
    state = {**load_file(file), **changes}
    save_file({k: x for k, x in state.items() if x is not None}, file, metadata={"format": "pt"})


def test_missing_weights_are_never_drawn(clip: Path) -> None:
    names = [*load_file(clip / "model.safetensors")]
    rewrite(clip, **{next(name for name in names if name.endswith("fc1.bias")): None})
    with pytest.raises(UserError, match=r"captions: .* 1 weights are missing, such as .*fc1.bias"):
        load_pretrained("CLIPTextModel", clip, "captions")


def digest(folder: Path, name: str, content: bytes) -> str:
    folder.mkdir()
    (folder / name).write_bytes(content)
    (folder / "config.json").write_text(folder.name)  # no weights
    return weights_digest(folder)


def test_digest_covers_bytes_and_names(tmp_path: Path) -> None:
    """An encoder into which an adapter was merged differs in its middle alone."""
    name, zeros = "model.safetensors", bytes(3 * 2**20)
    first = digest(tmp_path / "first", name, b"a" + zeros)
    assert digest(tmp_path / "same", name, b"a" + zeros) == first
    middle = zeros[: 2**21] + b"m" + zeros[2**21 + 1 :]
    changed = {
        digest(tmp_path / "middle", name, b"a" + middle),
        digest(tmp_path / "size", name, b"a" + zeros + b"z"),
        digest(tmp_path / "name", "model-1.safetensors", b"a" + zeros),
    }
    assert len(changed | {first}) == 4
