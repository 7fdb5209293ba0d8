"""Images of folders or tars with labels or captions, ADM's centre crop, and reading ahead."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tread_lab.data.captions import Captions
from tread_lab.data.folder import eight_bits
from tread_lab.data.shards import Member, members, tars_of
from tread_lab.specs.errors import UserError, first_line

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".webp")
LABEL, CAPTION = "cls", "txt"
AHEAD = 2  # batches that are read while one is worked on

Batch = TypeVar("Batch", bound=Sequence[int])
Read = TypeVar("Read")


class DamagedImage(UserError):
    """A file was read, and is no image; says which and why."""


class Images(Protocol):
    """A numbered set of images.

    Attributes:
        names: what each image is called, in the order of the set.
        labels: one of 0..C-1 for each image.
        classes: names of the classes, in the order of the labels.
        captions: all captions of each image; `None` where there are none.
    """

    names: Sequence[str]
    labels: Sequence[int]
    classes: Sequence[str]
    captions: Sequence[Captions] | None

    def open(self, place: int) -> Image.Image:
        """Return an image, its pixels loaded.

        Raises:
            DamagedImage: its file was read, and is no image.
            UserError: its file cannot be read, such as while a file server is away.
        """


class ImageFiles(Images, Protocol):
    """A numbered set of images in files."""

    def written(self, place: int) -> tuple[int, int]:
        """Return the bytes of an image, and when its file was last changed, in nanoseconds.

        Raises:
            UserError: it cannot be read.
        """


def open_images(path: Path, captions: Path | None = None, limit: int | None = None) -> ImageFiles:
    """Return the images in a folder of folders, in a folder of tars, or in the tars of a glob.

    Args:
        captions: COCO's annotations, or lines with `file_name` and `text`; for folders.
        limit: take so many images only, evenly spread over the set.

    Raises:
        UserError: there are no images, or a label or caption is missing.
    """
    tars = tars_of(path)
    if tars and captions is not None:
        raise UserError(f"--captions: captions of tars are their members `*.{CAPTION}`")
    images: ImageFiles = TarImages(tars) if tars else FolderImages(path, captions)
    if not images.names:
        raise UserError(
            f"no images in {path} (a folder with one folder a class, a folder of tars, or a glob"
            f" such as 'data/*.tar'; {', '.join(SUFFIXES)})"
        )
    return images if limit is None or limit >= len(images.names) else _Some(images, limit)


def digest_of(images: Images) -> str:
    """Return a hash of names, labels and captions, 16 hexadecimal digits."""
    tree = [list(images.names), list(images.labels), list(images.classes), images.captions]
    text = json.dumps(tree, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


class FolderImages:
    """Images in one folder a class, at any depth below it, as ImageNet lies on disks.

    Classes are numbered in the order of their names, images in the order of theirs. Where no image
    lies in a folder, all are of one class.

    Raises:
        UserError: some images lie in class folders and others beside them, or one has no caption.
    """

    def __init__(self, folder: Path, captions: Path | None = None) -> None:
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder}; give one with one folder a class")
        self._folder = folder
        self.names: Sequence[str] = sorted(_files(folder))
        loose = [name for name in self.names if "/" not in name]
        if loose and len(loose) < len(self.names):
            raise UserError(
                f"{folder} holds class folders, and {len(loose)} images beside them, such as"
                f" {loose[0]}; move them into their classes"
            )
        of_images = [name.partition("/")[0] if "/" in name else "all" for name in self.names]
        self.classes: Sequence[str] = sorted(set(of_images))
        number = {name: label for label, name in enumerate(self.classes)}
        self.labels: Sequence[int] = [number[name] for name in of_images]
        self.captions: Sequence[Captions] | None = None
        if captions is not None:
            self.captions = _captions_of(self.names, captions)

    def open(self, place: int) -> Image.Image:
        path = self._folder / self.names[place]
        return _loaded(str(path), path)

    def written(self, place: int) -> tuple[int, int]:
        path = self._folder / self.names[place]
        try:
            fact = path.stat()
        except OSError as error:
            raise _unreadable(str(path), error) from None
        return fact.st_size, fact.st_mtime_ns


class TarImages:
    """Images in webdataset tars, each with its label (`cls`) or captions (`txt`) or both.

    Tars are taken in order of their names, samples in order of their place; only the bytes of the
    image that is asked for are read. Without labels all images are of one class.

    Raises:
        UserError: a tar is damaged, or a sample lacks what others have.
    """

    def __init__(self, tars: Sequence[Path]) -> None:
        samples = [sample for tar in tars for sample in _samples(tar)]
        self._times = {tar: tar.stat().st_mtime_ns for tar in tars}
        self.names: Sequence[str] = [sample.name for sample in samples]
        self._places = [sample.place for sample in samples]
        labels = [sample.label for sample in samples]
        captions = [sample.captions for sample in samples]
        self.labels: Sequence[int] = [0 if label is None else label for label in labels]
        _all_or_none(self.names, labels, LABEL)
        _all_or_none(self.names, captions, CAPTION)
        told = [texts for texts in captions if texts is not None]
        self.captions: Sequence[Captions] | None = told or None
        if self.labels and min(self.labels) < 0:
            odd = self.names[self.labels.index(min(self.labels))]
            raise UserError(f"{odd}: its label is {min(self.labels)}; labels count from 0")
        count = max(self.labels, default=0) + 1
        numbers = [str(label) for label in range(count)]
        self.classes: Sequence[str] = ["all"] if None in labels else numbers

    def open(self, place: int) -> Image.Image:
        return _loaded(self.names[place], *self._places[place])

    def written(self, place: int) -> tuple[int, int]:
        tar, _, size = self._places[place]
        return size, self._times[tar]


class _Some:
    """Some of the images of a set, evenly spread; the classes are those of the whole set."""

    def __init__(self, images: ImageFiles, count: int) -> None:
        self._images = images
        n = len(images.names)
        self._places = [(place * n + n // 2) // count for place in range(count)]
        self.names: Sequence[str] = [images.names[place] for place in self._places]
        self.labels: Sequence[int] = [images.labels[place] for place in self._places]
        self.classes: Sequence[str] = images.classes
        whole = images.captions
        self.captions: Sequence[Captions] | None = (
            None if whole is None else [whole[place] for place in self._places]
        )

    def open(self, place: int) -> Image.Image:
        return self._images.open(self._places[place])

    def written(self, place: int) -> tuple[int, int]:
        return self._images.written(self._places[place])


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


def _loaded(name: str, path: Path, offset: int = 0, size: int = -1) -> Image.Image:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read(size)
    except OSError as error:
        raise _unreadable(name, error) from None
    try:
        with Image.open(io.BytesIO(content)) as image:
            image.load()
            return eight_bits(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DamagedImage(f"image {name} is damaged ({first_line(error)})") from None


def _unreadable(name: str, error: OSError) -> UserError:
    reason = error.strerror or error
    return UserError(f"image {name} cannot be read ({reason}); try again once it can")


class _Sample(NamedTuple):
    name: str
    place: tuple[Path, int, int]
    label: int | None
    captions: Captions | None


def _samples(tar: Path) -> Iterator[_Sample]:
    """Yield the images of a tar in their order."""
    places: dict[str, tuple[str, int, int]] = {}
    labels: dict[str, int] = {}
    captions: dict[str, Captions] = {}
    suffixes = tuple(suffix.removeprefix(".") for suffix in SUFFIXES)
    for member in members(tar, (*suffixes, LABEL, CAPTION), read=(LABEL, CAPTION)):
        if member.part in suffixes:
            places[member.key] = member.part, member.offset, member.size
        elif member.part == LABEL:
            labels[member.key] = _label(tar, member)
        else:
            captions[member.key] = _text(tar, member)
    for key, (part, offset, size) in places.items():
        name = f"{tar.name}/{key}.{part}"
        yield _Sample(name, (tar, offset, size), labels.get(key), captions.get(key))


def _label(tar: Path, member: Member) -> int:
    try:
        return int(member.content)
    except ValueError:
        found = f"holds {member.content[:20]!r}, no whole number"
        raise UserError(f"{tar}: {member.key}.{LABEL} {found}") from None


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
    readers: Executor, read: Callable[[int], Read], batches: Iterable[Batch]
) -> Iterator[tuple[Batch, list[Read]]]:
    """Yield each batch of places with what `read` returns of them, in order.

    A batch is taken from `batches` only when it is at most `AHEAD` batches from its turn.

    Raises:
        Exception: what `read` raised, at the turn of its batch.
    """
    waiting: deque[tuple[Batch, list[Future[Read]]]] = deque()
    for batch in batches:
        waiting.append((batch, [readers.submit(read, place) for place in batch]))
        if len(waiting) > AHEAD:
            yield _finished(*waiting.popleft())
    while waiting:
        yield _finished(*waiting.popleft())


def _finished(batch: Batch, reading: Sequence[Future[Read]]) -> tuple[Batch, list[Read]]:
    return batch, [future.result() for future in reading]
