"""Images of folders or tars with labels or captions, ADM's centre crop, and reading ahead."""

from __future__ import annotations

import io
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tread_lab.config.errors import UserError, first_line
from tread_lab.data.content import hashed
from tread_lab.data.folder import eight_bits
from tread_lab.data.shards import LABEL, bad_tar, label_of, members, tars_of
from tread_lab.data.stored import Captions

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".webp")
CAPTION = "txt"

Item = TypeVar("Item")


class DamagedImage(UserError):
    """A readable file is not an image; names file and reason."""


class Place(NamedTuple):
    """Location of an image: name in errors, file, first byte, number of bytes (-1: all)."""

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
        names: name of each image.
        captions: all captions of each image; `None` where there are none.
        place: returns the location of an image by number.
    """

    labels: Sequence[int]
    classes: Sequence[str]
    names: Sequence[str]
    captions: Sequence[Captions] | None
    place: Callable[[int], Place]

    def open(self, number: int) -> Image.Image:
        """Return an image, its pixels loaded.

        Raises:
            DamagedImage: the file is not an image.
            UserError: the file cannot be read, e.g. because a file server is down.
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
            raise DamagedImage(
                f"image {name}: must be readable, got {first_line(error)}. Try --skip-damaged."
            ) from None

    def digests(self) -> dict[str, str]:
        """Return hashes of names, labels and captions, and of size and time of each file.

        Raises:
            UserError: a file cannot be read.
        """
        tree = [list(self.names), list(self.labels), list(self.classes), self.captions]
        files = dict.fromkeys(self.place(number).file for number in range(len(self.names)))
        try:
            facts = [(file.name, file.stat()) for file in files]
        except OSError as error:
            raise _unreadable(str(error.filename), error) from None
        stamps = (f"{name} {fact.st_size} {fact.st_mtime_ns}" for name, fact in facts)
        return {"names": hashed([json.dumps(tree)]), "files": hashed(stamps)}


def _unreadable(name: str, error: OSError) -> UserError:
    return UserError(f"image {name}: must be readable, got {error.strerror}. Try again later.")


def open_images(path: Path, captions: Path | None = None, limit: int | None = None) -> Images:
    """Return the images in a folder of folders, in a folder of tars, or in the tars of a glob.

    Args:
        captions: COCO's annotations, or lines with `file_name` and `text`; for folders.
        limit: use only this many images, evenly spaced; classes: of the whole set.

    Raises:
        UserError: there are no images, or a label or caption is missing.
    """
    tars = tars_of(path)
    if tars and captions is not None:
        raise UserError(f"--captions: must be `*.{CAPTION}` members of the tars, got {captions}")
    images = _of_tars(tars) if tars else _of_folder(path, captions)
    count = len(images.names)
    if not count:
        raise UserError(
            f"{path}: must hold images ({', '.join(SUFFIXES)}), got none. Try a folder with one"
            " folder per class, a folder of tars, or a glob such as 'data/*.tar'."
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


def _of_folder(folder: Path, captions: Path | None) -> Images:
    """Return images in one folder a class, at any depth below it, as ImageNet lies on disks.

    Classes are numbered in the order of their names, images in the order of theirs. Where no image
    lies in a folder, all are of one class.
    """
    names = sorted(_files(folder))
    loose = [name for name in names if "/" not in name]
    if 0 < len(loose) < len(names):
        raise UserError(
            f"{folder}: must hold either images or class folders, got both. Try moving"
            f" {loose[0]} into its class."
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
    places: dict[tuple[Path, str], Place] = {}
    labels: dict[tuple[Path, str], int] = {}
    captions: dict[tuple[Path, str], Captions] = {}
    suffixes = tuple(suffix.removeprefix(".") for suffix in SUFFIXES)
    for tar in tars:
        for member in members(tar, (*suffixes, LABEL, CAPTION), read=(LABEL, CAPTION)):
            key = tar, member.key
            if member.part == LABEL:
                labels[key] = label_of(tar, member)
            elif member.part == CAPTION:
                if text := member.content.decode(errors="replace").strip():
                    captions[key] = (text,)
            else:
                name = f"{tar.name}/{member.key}.{member.part}"
                places[key] = Place(name, tar, member.offset, member.size)
    for tar, odd in sorted((labels.keys() | captions.keys()) - places.keys()):
        raise bad_tar(tar, f"sample {odd!r} has no image ({', '.join(SUFFIXES)})")
    for what, held in ((LABEL, labels), (CAPTION, captions)):
        if len(held) not in (0, len(places)):
            raise UserError(f"{tars[0].parent}: must have a {what} for each image or for none")
    if labels and min(labels.values()) < 0:
        lowest = min(labels.values())
        raise UserError(f"{tars[0].parent}: labels must be 0 or more, got {lowest}")
    return Images(
        [labels.get(key, 0) for key in places],
        [*map(str, range(max(labels.values()) + 1))] if labels else ["all"],
        [place.name for place in places.values()],
        [captions[key] for key in places] if captions else None,
        [*places.values()].__getitem__,
    )


def _files(folder: Path) -> Iterator[str]:
    """Yield the images below `folder`, relative to it; a million take seconds."""
    for place, folders, names in os.walk(folder, onerror=_unlisted, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                yield os.path.relpath(f"{place}/{name}", folder)


def _unlisted(error: OSError) -> None:
    raise UserError(f"{error.filename}: must be a readable folder, got {error.strerror}")


def _captions_of(names: Sequence[str], file: Path) -> list[Captions]:
    """Return the captions of images by the name of their file, or by their path in the folder.

    A file is COCO's annotations, or has a line for each caption:
    `{"file_name": "a/1.png", "text": "..."}`.
    """
    by_name: dict[str, list[str]] = {}
    try:
        content = file.read_text("utf-8")
        if file.suffix == ".json":  # of COCO
            tree = json.loads(content)
            of_id = {image["id"]: image["file_name"] for image in tree["images"]}
            rows = [(of_id[row["image_id"]], row["caption"]) for row in tree["annotations"]]
        else:
            lines = (json.loads(line) for line in content.split("\n") if line.strip())
            rows = [(row["file_name"], row["text"]) for row in lines]
        for name, text in rows:
            by_name.setdefault(name, []).append(text.strip())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"--captions: {file} must be COCO's annotations or lines of file_name and text, got"
            f" {error!r}"
        ) from None
    counts = Counter(name.rpartition("/")[2] for name in names)
    found = []
    for name in names:
        file_name = name.rpartition("/")[2]
        texts = by_name.get(name) or (by_name.get(file_name) if counts[file_name] == 1 else None)
        if not texts or not all(texts):
            raise UserError(
                f"--captions: {file} must name each image and its text, got none for {name}. Try"
                " its path in the folder."
            )
        found.append(tuple(texts))
    return found


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


def crops(
    images: Images,
    batches: Iterable[Sequence[int]],
    side: int,
    *,
    workers: int,
    skip_damaged: bool,
) -> Iterator[tuple[list[int], NDArray[np.uint8]]]:
    """Yield the numbers of a batch of images, without damaged ones, and their crops [B, 3, side,
    side] in order; `workers` threads read ahead.

    Raises:
        DamagedImage: an image cannot be read, and `skip_damaged` does not leave it out.
    """

    def cropped(batch: Sequence[int]) -> tuple[list[int], NDArray[np.uint8]]:
        found = {}
        for number in batch:
            try:
                found[number] = centre_crop(images.open(number), side).transpose(2, 0, 1)
            except DamagedImage:
                if not skip_damaged:
                    raise
        blank = np.zeros((0, 3, side, side), np.uint8)
        return [*found], np.stack([*found.values()]) if found else blank

    pool = ThreadPoolExecutor(workers)
    try:
        yield from ahead((pool.submit(cropped, batch) for batch in batches), workers)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def ahead(futures: Iterable[Future[Item]], count: int) -> Iterator[Item]:
    """Yield results in order, with `count` further calls in progress."""
    waiting: deque[Future[Item]] = deque()
    for future in futures:
        waiting.append(future)
        if len(waiting) > count:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
