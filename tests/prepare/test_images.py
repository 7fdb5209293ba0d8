"""Images to encode: class folders, tars, captions, and every mistake in one line."""

from __future__ import annotations

import errno
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.conftest import Member, write_tar
from tread_lab.prepare.images import DamagedImage, open_images
from tread_lab.specs import UserError

WriteTar = Callable[[Path, list[Member]], None]
__all__ = ["write_tar"]


def png(level: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (level, 0, 0)).save(buffer, "png")
    return buffer.getvalue()


def test_classes_are_folders_in_the_order_of_their_names(images: Path) -> None:
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


def test_a_limit_is_spread_over_all_classes(images: Path) -> None:
    opened = open_images(images, limit=6)
    assert list(opened.labels) == [0, 0, 1, 1, 2, 2] and len(opened.classes) == 3
    assert opened.open(5).size == open_images(images).open(37).size


def test_tars_give_images_with_labels_or_captions(tmp_path: Path, write_tar: WriteTar) -> None:
    labels = [(f"{k}.cls", b"%d" % (k % 2)) for k in range(4)]
    labelled = [member for k in range(4) for member in (labels[k], (f"{k}.png", png(k)))]
    write_tar(tmp_path / "tars" / "a.tar", labelled)
    opened = open_images(tmp_path / "tars")
    assert list(opened.labels) == [0, 1, 0, 1] and list(opened.classes) == ["0", "1"]
    assert opened.names[2] == "a.tar/2.png" and opened.open(2).getpixel((0, 0)) == (2, 0, 0)
    told = [member for k in "01" for member in ((f"{k}.png", png(1)), (f"{k}.txt", b" a dog "))]
    write_tar(tmp_path / "captions" / "a.tar", told)
    opened = open_images(tmp_path / "captions")
    assert opened.captions == [("a dog",), ("a dog",)] and list(opened.classes) == ["all"]


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([("0.png", png(0)), ("0.cls", b"1"), ("1.png", png(1))], "a.tar/1.png has no cls"),
        ([("0.png", png(0)), ("0.txt", b"x"), ("1.png", png(1))], "a.tar/1.png has no txt"),
        ([("0.png", png(0)), ("0.txt", b" ")], "0.txt is empty; each image needs a caption"),
        ([("0.png", png(0)), ("0.cls", b"dog")], "holds b'dog', no whole number"),
        ([("0.png", png(0)), ("0.cls", b"-1")], "labels count from 0"),
    ],
)
def test_what_a_tar_lacks_is_one_line(
    tmp_path: Path, write_tar: WriteTar, members: list[Member], says: str
) -> None:
    write_tar(tmp_path / "tars" / "a.tar", members)
    with pytest.raises(UserError, match=says):
        open_images(tmp_path / "tars")


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
    (tmp_path / "m.jsonl").write_text('{"file_name": "1.png", "text": "one"}\n')
    with pytest.raises(UserError, match=r"1 image has no caption in .*m.jsonl, such as 2.png"):
        open_images(tmp_path, tmp_path / "m.jsonl")
    (tmp_path / "m.jsonl").write_text("one\n")
    with pytest.raises(UserError, match="no lines of file_name and text"):
        open_images(tmp_path, tmp_path / "m.jsonl")
    (tmp_path / "coco.json").write_text("{}")
    with pytest.raises(UserError, match="no file of COCO's captions"):
        open_images(tmp_path, tmp_path / "coco.json")


@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_a_file_that_cannot_be_read_is_no_damaged_image(
    kind: str,
    images: Path,
    tmp_path: Path,
    write_tar: WriteTar,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file server that is away for a minute must leave no image out."""
    write_tar(tmp_path / "tars" / "a.tar", [("0.png", png(0)), ("0.cls", b"0")])
    opened = open_images(images if kind == "folder" else tmp_path / "tars")

    def away(path: Path, *mode: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "open", away)
    with pytest.raises(
        UserError, match=r"cannot be read \(Input/output error\); try again"
    ) as held:
        opened.open(0)
    assert not isinstance(held.value, DamagedImage)


def test_no_images_and_stray_images_are_one_line(images: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no images in"):
        open_images(tmp_path / "empty")
    with pytest.raises(UserError, match="there is no folder"):
        open_images(tmp_path / "gone")
    (images / "stray.png").write_bytes(png(0))
    with pytest.raises(UserError, match=r"1 images beside them, such as stray.png"):
        open_images(images)
