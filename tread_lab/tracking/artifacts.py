"""The files MLflow shows of a run: spec, result, and pictures for its image grid."""

# B blocks

from __future__ import annotations

import io
import re
import uuid
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tread_lab.records.evaluation_folder import EvaluationFolder
from tread_lab.records.run_folder import RunFolder
from tread_lab.specs.cell import Tree
from tread_lab.specs.evaluation_text import MetricNames, count_label

File = Path | str | bytes
THUMBNAIL = 256  # pixels, as MLflow's own
PREVIEW = 520  # pixels
PIXELS = 24  # of one entry of a matrix
COLOURS = np.array(  # dark to light, readable by the colour-blind and in print
    [(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)], dtype=float
)


def run_files(
    run: RunFolder, names: MetricNames, *, step: int, time: int, end: str = ""
) -> tuple[dict[str, File], str]:
    """Place among the artifacts -> file or content, and what cannot be read; "" if all can.

    Arrays of samples and losses stay in the record.

    Args:
        step: at which the image grid shows pictures of the last weights.
        end: what it adds to their keys.
    """
    files: dict[str, File] = {"spec.yaml": run.path / "spec.yaml"}
    if (run.path / "result.json").exists():
        files["result.json"] = run.path / "result.json"
    problem = ""
    for evaluation in run.evaluations():
        tree = evaluation.read()
        if tree is None:
            continue
        try:
            folder = picture_folder(names, evaluation.path.name, tree["spec"])
            shown, pictures = _evaluation_files(evaluation)
            at = evaluation.step
            for name, picture in pictures.items():
                shown[name] = picture
                key, when = (folder + end, step) if at is None else (folder, at)
                files |= _grid_files(f"{run.name}/{name}", key, picture, step=when, time=time)
            folder = folder if at is None else f"{folder}/step_{at}"
            files |= {f"{folder}/{name}": file for name, file in shown.items()}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            problem = f"{evaluation.path} cannot be read ({error}); evaluate again"
    return files, problem


def preview(path: Path) -> bytes | None:
    """A figure small enough for a page, `None` if it is no picture."""
    try:
        with Image.open(path) as image:
            image.thumbnail((PREVIEW, PREVIEW))
            return _stored(image, "PNG", optimize=True)
    except OSError:
        return None


def _stored(image: Image.Image, kind: str, **options: bool) -> bytes:
    """The bytes of the file of a picture."""
    content = io.BytesIO()
    image.save(content, format=kind, **options)
    return content.getvalue()


def _evaluation_files(
    evaluation: EvaluationFolder,
) -> tuple[dict[str, File], dict[str, Path | bytes]]:
    """What is shown as it is, and what the image grid shows too."""
    shown: dict[str, File] = {}
    pictures: dict[str, Path | bytes] = {p.name: p for p in sorted(evaluation.path.glob("*.png"))}
    for path in evaluation.path.glob("similarity.npz"):
        with np.load(path, allow_pickle=False) as arrays:
            mean_BB = np.asarray(arrays["mean"], dtype=np.float64)
        shown |= {path.name: path, "similarity.csv": _table(mean_BB)}
        pictures["similarity.png"] = _heatmap(mean_BB)
    return shown, pictures


def picture_folder(names: MetricNames, evaluation: str, tree: Tree) -> str:
    """Return the folder of an evaluation's pictures: `samples_64`, `samples_1k_w_2`."""
    kind = "samples@" + count_label(tree["count"]) if tree["kind"] == "samples" else tree["kind"]
    return re.sub(r"[^\w.-]+", "_", names.name(kind, evaluation, tree)).strip("_")


def picture_key(folder: str) -> str:
    """Return what MLflow's image grid calls the pictures of an evaluation."""
    return f"pictures/{folder}"


def has_pictures(files: Iterable[str]) -> bool:
    """Whether MLflow's image grid has something to show."""
    return any(place.startswith("images/") for place in files)


def _grid_files(
    unique: str, folder: str, picture: Path | bytes, *, step: int, time: int
) -> dict[str, File]:
    """A picture and its thumbnail where MLflow's image grid looks for them; equal names each time.

    MLflow's own `log_image` draws a random name, so that a replay would add another picture.
    """
    name = uuid.uuid5(uuid.NAMESPACE_URL, f"{picture_key(folder)}/{unique}")
    stem = f"images/{picture_key(folder).replace('/', '~')}+step+{step}+timestamp+{time}+{name}"
    return {f"{stem}.png": picture, f"{stem}+compressed.webp": _thumbnail(picture)}


def _thumbnail(picture: Path | bytes) -> bytes:
    with Image.open(io.BytesIO(picture) if isinstance(picture, bytes) else picture) as image:
        image.thumbnail((THUMBNAIL, THUMBNAIL))
        return _stored(image.convert("RGB"), "WEBP", lossless=True)


def _table(mean_BB: NDArray[np.float64]) -> str:
    """The matrix as comma-separated values, which MLflow's artifact page shows as a table."""
    numbers = range(len(mean_BB))
    rows = [f"{a}," + ",".join(f"{value:.4f}" for value in mean_BB[a]) for a in numbers]
    return "\n".join(["block," + ",".join(map(str, numbers)), *rows]) + "\n"


def _heatmap(mean_BB: NDArray[np.float64]) -> bytes:
    """The matrix as a PNG picture; colours run from 0 to 1 in every run, so runs compare."""
    place_BB = np.nan_to_num(mean_BB).clip(0, 1) * (len(COLOURS) - 1)
    anchors = np.arange(len(COLOURS))
    channels = [np.interp(place_BB, anchors, COLOURS[:, c]) for c in range(3)]
    image = Image.fromarray(np.stack(channels, axis=-1).round().astype(np.uint8))
    size = (PIXELS * image.width, PIXELS * image.height)
    return _stored(image.resize(size, Image.Resampling.NEAREST), "PNG")
