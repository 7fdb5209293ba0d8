"""Images of folders or tars with labels or captions, ADM's centre crop, and reading ahead."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tread_lab.data.captions import Captions
from tread_lab.data.content import hashed
from tread_lab.data.folder import eight_bits
from tread_lab.data.shards import LABEL, Member, label_of, members, tars_of
from tread_lab.specs.errors import UserError, first_line

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".webp")
CAPTION = "txt"
AHEAD = 2  # batches that are read while one is worked on

Batch = TypeVar("Batch", bound=Sequence[int])
Read = TypeVar("Read")
Item = TypeVar("Item")


class DamagedImage(UserError):
    """A file was read, and is no image; says which and why."""


class Place(NamedTuple):
    """Where an image lies: its name in errors, its file, its first byte, its bytes (-1: all)."""

    name: str
    file: Path
    offset: int = 0
    size: int = -1


@dataclass(frozen=True)
class Images:
    """A numbered set of images in files.

    Attributes:
        labels: one of 0..C-1 for each image, in the order of the set.
        classes: names of the classes, in the order of the labels.
        names: what each image is called.
        captions: all captions of each image; `None` where there are none.
        place: gives where the image of a number lies.
    """

    labels: Sequence[int]
    classes: Sequence[str]
    names: Sequence[str]
    captions: Sequence[Captions] | None
    place: Callable[[int], Place]

    def open(self, number: int) -> Image.Image:
        """Return an image, its pixels loaded.

        Raises:
            DamagedImage: its file was read, and is no image.
            UserError: its file cannot be read, such as while a file server is away.
        """
        name, file, offset, size = self.place(number)
        try:
            with file.open("rb") as opened:
                opened.seek(offset)
                content = opened.read(size)
        except OSError as error:
            raise _unreadable(name, error) from None
        try:
            with Image.open(io.BytesIO(content)) as image:
                image.load()
                return eight_bits(image)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise DamagedImage(f"image {name} is damaged ({first_line(error)})") from None

    def crop(self, number: int, side: int, *, skip_damaged: bool) -> NDArray[np.uint8] | None:
        """Return the middle [3, side, side] of an image, see `centre_crop`; `None` where it is
        damaged and may be left out.

        Raises:
            DamagedImage: it may not.
        """
        try:
            return centre_crop(self.open(number), side).transpose(2, 0, 1)
        except DamagedImage as error:
            if skip_damaged:
                return None
            raise DamagedImage(f"{error}; mend it, or give --skip-damaged") from None

    def files_digest(self) -> str:
        """Return a hash of name, bytes and last change of each file; a tar is one file.

        Raises:
            UserError: one cannot be read.
        """
        return hashed(self._files())

    def _files(self) -> Iterator[str]:
        places = map(self.place, range(len(self.names)))
        for file, inside in itertools.groupby(places, key=lambda place: place.file):
            try:
                facts = file.stat()
            except OSError as error:
                raise _unreadable(next(inside).name, error) from None
            yield f"{file.name} {facts.st_size} {facts.st_mtime_ns}"


def _unreadable(name: str, error: OSError) -> UserError:
    reason = error.strerror or error
    return UserError(f"image {name} cannot be read ({reason}); try again once it can")


def open_images(path: Path, captions: Path | None = None, limit: int | None = None) -> Images:
    """Return the images in a folder of folders, in a folder of tars, or in the tars of a glob.

    Args:
        captions: COCO's annotations, or lines with `file_name` and `text`; for folders.
        limit: take so many images only, evenly spread over the set, of whose classes they are.

    Raises:
        UserError: there are no images, or tars and images, or a label or caption is missing.
    """
    tars = tars_of(path)
    if tars and (beside := _image_below(path)) is not None:
        raise UserError(
            f"{path} holds tars, and images beside them, such as {beside}; move the tars away, or"
            f" take them alone: '{path}/*.tar'"
        )
    if tars and captions is not None:
        raise UserError(f"--captions: captions of tars are their members `*.{CAPTION}`")
    images = _of_tars(tars) if tars else _of_folder(path, captions)
    count = len(images.names)
    if not count:
        raise UserError(
            f"no images in {path} (a folder with one folder a class, a folder of tars, or a glob"
            f" such as 'data/*.tar'; {', '.join(SUFFIXES)})"
        )
    if limit is None or limit >= count:
        return images
    some = [(number * count + count // 2) // limit for number in range(limit)]
    return replace(
        images,
        names=[images.names[number] for number in some],
        labels=[images.labels[number] for number in some],
        captions=images.captions and [images.captions[number] for number in some],
        place=lambda number: images.place(some[number]),
    )


def _image_below(path: Path) -> str | None:
    """Return an image below a folder of tars; a folder there that cannot be read holds none."""
    with contextlib.suppress(UserError):
        return next(_files(path), None) if path.is_dir() else None
    return None


def digest_of(images: Images) -> str:
    """Return a hash of names, labels and captions, 16 hexadecimal digits."""
    tree = [list(images.names), list(images.labels), list(images.classes), images.captions]
    text = json.dumps(tree, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _of_folder(folder: Path, captions: Path | None) -> Images:
    """Return images in one folder a class, at any depth below it, as ImageNet lies on disks.

    Classes are numbered in the order of their names, images in the order of theirs. Where no image
    lies in a folder, all are of one class.
    """
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; give one with one folder a class")
    names = sorted(_files(folder))
    loose = [name for name in names if "/" not in name]
    if loose and len(loose) < len(names):
        raise UserError(
            f"{folder} holds class folders, and {len(loose)} images beside them, such as"
            f" {loose[0]}; move them into their classes"
        )
    of_images = [name.partition("/")[0] if "/" in name else "all" for name in names]
    classes = sorted(set(of_images))
    label = {name: number for number, name in enumerate(classes)}
    return Images(
        [label[name] for name in of_images],
        classes,
        names,
        None if captions is None else _captions_of(names, captions),
        lambda number: Place(str(folder / names[number]), folder / names[number]),
    )


def _of_tars(tars: Sequence[Path]) -> Images:
    """Return images in webdataset tars, each with its label (`cls`) or captions (`txt`) or both.

    Tars are taken in order of their names, samples in order of their place; only the bytes of the
    image that is asked for are read. Without labels all images are of one class.
    """
    samples = [sample for tar in tars for sample in _samples(tar)]
    places, labels, captions = (
        (list(column) for column in zip(*samples)) if samples else ([], [], [])
    )
    names = [place.name for place in places]
    _all_or_none(names, labels, LABEL)
    _all_or_none(names, captions, CAPTION)
    if None in labels or not labels:
        labels, classes = [0] * len(names), ["all"]
    elif min(labels) < 0:
        odd = names[labels.index(min(labels))]
        raise UserError(f"{odd}: its label is {min(labels)}; labels count from 0")
    else:
        classes = [str(label) for label in range(max(labels) + 1)]
    return Images(
        labels, classes, names, None if None in captions else captions, places.__getitem__
    )


def _files(folder: Path, prefix: str = "") -> Iterator[str]:
    """Yield the images below `folder`, relative to it, by scanning: a million take seconds."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    yield from _files(Path(entry.path), f"{prefix}{entry.name}/")
                elif entry.name.lower().endswith(SUFFIXES):
                    yield prefix + entry.name
    except OSError as error:
        raise UserError(f"{folder} cannot be read ({error.strerror})") from None


def _samples(tar: Path) -> Iterator[tuple[Place, int | None, Captions | None]]:
    """Yield place, label and captions of the images of a tar in their order."""
    places: dict[str, Place] = {}
    labels: dict[str, int] = {}
    captions: dict[str, Captions] = {}
    suffixes = tuple(suffix.removeprefix(".") for suffix in SUFFIXES)
    for member in members(tar, (*suffixes, LABEL, CAPTION), read=(LABEL, CAPTION)):
        if member.part == LABEL:
            labels[member.key] = label_of(tar, member)
        elif member.part == CAPTION:
            captions[member.key] = _text(tar, member)
        else:
            name = f"{tar.name}/{member.key}.{member.part}"
            places[member.key] = Place(name, tar, member.offset, member.size)
    if odd := sorted(labels.keys() - places.keys()):
        kinds = ", ".join(SUFFIXES)
        raise UserError(f"{tar}: sample {odd[0]!r} has a {LABEL} and no image ({kinds})")
    for key, place in places.items():
        yield place, labels.get(key), captions.get(key)


def _text(tar: Path, member: Member) -> Captions:
    try:
        text = member.content.decode().strip()
    except UnicodeDecodeError:
        raise UserError(f"{tar}: {member.key}.{CAPTION} is no UTF-8 text") from None
    if not text:
        raise UserError(f"{tar}: {member.key}.{CAPTION} is empty; each image needs a caption")
    return (text,)


def _all_or_none(names: Sequence[str], values: Sequence[object], what: str) -> None:
    missing = [name for name, value in zip(names, values, strict=True) if value is None]
    if missing and len(missing) < len(names):
        raise UserError(f"{missing[0]} has no {what}, and other images have one")


def _captions_of(names: Sequence[str], file: Path) -> list[Captions]:
    """Return the captions of images by the name of their file, or by their path in the folder."""
    rows, no_captions = _lines, "has no lines of file_name and text"
    if file.suffix == ".json":
        rows, no_captions = _coco, "is no file of COCO's captions"
    by_name: dict[str, list[str]] = {}
    try:
        for name, text in rows(file.read_text(encoding="utf-8")):
            by_name.setdefault(name, []).append(text)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"--captions: {file} {no_captions} ({error!r})") from None
    keys = [name if name in by_name else name.rpartition("/")[2] for name in names]
    counts = Counter(keys)
    for name, key in zip(names, keys, strict=True):
        if counts[key] > 1 and key in by_name:
            raise UserError(
                f"--captions: {file} has captions of {key}, and {counts[key]} images are called so,"
                f" such as {name}; write the path of each in the folder"
            )
    found = [by_name.get(key) for key in keys]
    missing = [name for name, texts in zip(names, found, strict=True) if not texts]
    if missing:
        count = f"{len(missing)} images have" if len(missing) > 1 else "1 image has"
        raise UserError(f"--captions: {count} no caption in {file}, such as {missing[0]}")
    return [tuple(texts) for texts in found if texts]


def _coco(content: str) -> Iterator[tuple[str, str]]:
    """COCO's annotations: `images` with id and file_name, `annotations` with image_id, caption."""
    tree = json.loads(content)
    names = {image["id"]: image["file_name"] for image in tree["images"]}
    for row in tree["annotations"]:
        if text := _words(row["caption"]):
            yield names[row["image_id"]], text


def _lines(content: str) -> Iterator[tuple[str, str]]:
    """One line a caption: `{"file_name": "a/1.png", "text": "..."}`."""
    for row in (json.loads(line) for line in content.split("\n") if line.strip()):
        if text := _words(row["text"]):
            yield row["file_name"], text


def _words(text: object) -> str:
    """Return a caption; nothing for `null` and what else is no text."""
    return text.strip() if isinstance(text, str) else ""


def centre_crop(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """Return the middle of an image, uint8 [size, size, 3], as ADM and its successors crop it.

    While the shorter side is at least 2 `size`, the image is halved by averaging boxes of 2x2
    pixels (sides rounded down). It is then resized bicubically so that the shorter side is `size`,
    and the middle is cut out, half a pixel towards the origin where sides are odd (Dhariwal &
    Nichol 2021; the same in DiT, SiT, EDM2 and REPA).
    """
    image = image.convert("RGB")
    while min(image.size) >= 2 * size:
        halved = image.width // 2, image.height // 2
        image = image.resize(halved, resample=Image.Resampling.BOX)
    factor = size / min(image.size)
    sides = round(image.width * factor), round(image.height * factor)
    image = image.resize(sides, resample=Image.Resampling.BICUBIC)
    left, top = (image.width - size) // 2, (image.height - size) // 2
    return np.asarray(image)[top : top + size, left : left + size]


def read_ahead(
    readers: Executor, read: Callable[[int], Read], batches: Iterable[Batch], ahead: int = AHEAD
) -> Iterator[tuple[Batch, list[Read]]]:
    """Yield each batch of numbers with what `read` returns of them, in order.

    A batch is taken from `batches` only when it is at most `ahead` batches from its turn.

    Raises:
        Exception: what `read` raised, at the turn of its batch.
    """
    reading = ((batch, [readers.submit(read, number) for number in batch]) for batch in batches)
    for batch, futures in delayed(reading, ahead):
        yield batch, [future.result() for future in futures]


def delayed(items: Iterable[Item], ahead: int) -> Iterator[Item]:
    """Yield items in order, each when `ahead` more have been taken after it."""
    waiting: deque[Item] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > ahead:
            yield waiting.popleft()
    yield from waiting
