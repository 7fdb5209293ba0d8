"""Images to encode: class folders, tars, captions, and every mistake in one line."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from tests.data.conftest import write_tar
from tread_lab.config import UserError
from tread_lab.data.images import centre_crop, open_images


def png(level: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (level, 0, 0)).save(buffer, "png")
    return buffer.getvalue()


def test_classes_are_folders_in_order(images: Path) -> None:
    (images / "n00000001" / "deep").mkdir()
    (images / "n00000001" / "deep" / "z.JPEG").write_bytes(png(7))
    (images / "n00000001" / ".hidden.png").write_bytes(b"")
    (images / "README.md").write_text("no image")
    opened = open_images(images)
    assert list(opened.classes) == ["n00000000", "n00000001", "n00000002"]
    assert len(opened.names) == 42 and opened.captions is None
    assert np.bincount(opened.labels).tolist() == [14, 15, 13]
    place = list(opened.names).index("n00000001/deep/z.JPEG")
    assert opened.labels[place] == 1 and opened.open(place).getpixel((0, 0)) == (7, 0, 0)


@pytest.mark.task(51)
def test_images_of_six_formats_are_found(tmp_path: Path) -> None:
    names = ["0.bmp", "1.jpeg", "2.JPG", "3.png", "4.ppm", "5.webp"]
    for side, name in enumerate(names, start=8):
        Image.new("RGB", (side, 20)).save(tmp_path / name)
    opened = open_images(tmp_path)
    assert list(opened.names) == names
    assert [opened.open(k).size for k in range(6)] == [(k + 8, 20) for k in range(6)]


@pytest.mark.task(51)
def test_tars_give_images_with_labels_or_captions(tmp_path: Path) -> None:
    labels = [(f"{k}.cls", b"%d" % (k % 2)) for k in range(4)]
    suffixes = ("png", "png", "PNG", "png")
    images = [(f"{k}.{suffix}", png(k)) for k, suffix in enumerate(suffixes)]
    labelled = [member for pair in zip(labels, images, strict=True) for member in pair]
    write_tar(tmp_path / "tars" / "a.tar", labelled)
    opened = open_images(tmp_path / "tars")
    assert list(opened.labels) == [0, 1, 0, 1] and list(opened.classes) == ["0", "1"]
    assert opened.names[2] == "a.tar/2.png" and opened.open(2).getpixel((0, 0)) == (2, 0, 0)
    written = opened.digests()
    os.utime(tmp_path / "tars" / "a.tar", (1, 1))
    assert opened.digests()["files"] != written["files"]
    told = [member for k in "01" for member in ((f"{k}.png", png(1)), (f"{k}.txt", b" a dog "))]
    write_tar(tmp_path / "captions" / "a.tar", told)
    opened = open_images(tmp_path / "captions")
    assert opened.captions == [("a dog",), ("a dog",)] and list(opened.classes) == ["all"]
    with pytest.raises(UserError, match=r"^--captions: must be `\*.txt` members of the tars"):
        open_images(tmp_path / "captions", tmp_path / "m.jsonl")


def test_captions_come_from_coco_and_from_lines(tmp_path: Path) -> None:
    for name in ("1.png", "2.png"):
        (tmp_path / name).write_bytes(png(1))
    coco = {
        "images": [{"id": 7, "file_name": "1.png"}, {"id": 9, "file_name": "2.png"}],
        "annotations": [
            {"image_id": 9, "caption": "two"},
            {"image_id": 7, "caption": "one"},
            {"image_id": 7, "caption": "uno"},
        ],
    }
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    opened = open_images(tmp_path, tmp_path / "coco.json")
    assert opened.captions == [("one", "uno"), ("two",)] and list(opened.labels) == [0, 0]
    for rows in ('{"file_name": "1.png", "text": "one"}', "one", '{"file_name": 1}'):
        (tmp_path / "m.jsonl").write_text(rows)
        with pytest.raises(UserError, match=r"--captions: .*m.jsonl must"):
            open_images(tmp_path, tmp_path / "m.jsonl")
    (tmp_path / "coco.json").write_text("{}")
    with pytest.raises(UserError, match="must be COCO's annotations"):
        open_images(tmp_path, tmp_path / "coco.json")


def _reference(pixels: np.ndarray, size: int) -> np.ndarray:
    """By torch, rounded to levels after the rows and after the columns, as images are."""
    x_BCHW = torch.from_numpy(pixels).permute(2, 0, 1)[None].double()
    while min(x_BCHW.shape[2:]) >= 2 * size:
        for box in ((1, 2), (2, 1)):
            x_BCHW = (F.avg_pool2d(x_BCHW, box) + 0.5).floor()
    height, width = x_BCHW.shape[2:]
    h, w = (round(side * size / min(height, width)) for side in (height, width))
    for sides in ((height, w), (h, w)):
        x_BCHW = F.interpolate(x_BCHW, sides, mode="bicubic", antialias=True)
        x_BCHW = (x_BCHW + 0.5).floor().clamp(0, 255)
    top, left = (h - size) // 2, (w - size) // 2
    return x_BCHW[0, :, top : top + size, left : left + size].permute(1, 2, 0).numpy()


@pytest.mark.parametrize(("size", "off"), [(16, 0), (24, 1), (30, 1), (64, 0), (80, 1)])
def test_the_crop_is_its_definition(pixels: np.ndarray, size: int, off: int) -> None:
    cropped = centre_crop(Image.fromarray(pixels), size)
    assert cropped.shape == (size, size, 3) and cropped.dtype == np.uint8
    assert np.abs(cropped - _reference(pixels, size)).max() <= off
