"""Pictures of a run: sheets of samples and matrices of block similarity, each with its step."""

# B blocks

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tread_lab.config.labels import MetricNames, count_label
from tread_lab.records.run_folder import RunFolder

THUMBNAIL = 256  # pixels, as MLflow's own
PIXELS = 24  # of one entry of a matrix
COLOURS = np.array(  # dark to light, readable by the colour-blind and in print
    [(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)], dtype=float
)


@dataclass(frozen=True)
class Picture:
    """A picture of an evaluation.

    Attributes:
        key: what its evaluation is called: `samples_64`, `samples_1k_w_2`, `layer_similarity`.
        step: of the measured weights.
        png: the bytes of its file.
    """

    key: str
    step: int
    png: bytes

    @property
    def thumbnail(self) -> bytes:
        """A small copy as WebP."""
        with Image.open(io.BytesIO(self.png)) as image:
            image.thumbnail((THUMBNAIL, THUMBNAIL))
            return _stored(image.convert("RGB"), "WEBP", lossless=True)


def pictures_of(run: RunFolder, names: MetricNames, end: int) -> Iterator[Picture]:
    """Yield the pictures of the finished evaluations of a run.

    Args:
        end: the step of the run's last weights.
    """
    for evaluation in filter(lambda folder: folder.done, run.evaluations()):
        tree = (evaluation.read() or {}).get("spec", {})
        kind = tree["kind"]
        kind = f"samples@{count_label(tree['count'])}" if kind == "samples" else kind
        name = names.name(kind, evaluation.path.name, tree)
        key, step = re.sub(r"[^\w.-]+", "_", name).strip("_"), tree.get("step") or end
        for path in evaluation.path.glob("grid.png"):
            yield Picture(key, step, path.read_bytes())
        for path in evaluation.path.glob("similarity.npz"):
            with np.load(path, allow_pickle=False) as arrays:
                yield Picture(key, step, _heatmap(np.asarray(arrays["mean"], dtype=np.float64)))


def _heatmap(mean_BB: NDArray[np.float64]) -> bytes:
    """Return a matrix as a PNG picture; colours run from 0 to 1 in every run, so runs compare."""
    place_BB = np.nan_to_num(mean_BB).clip(0, 1) * (len(COLOURS) - 1)
    anchors = np.arange(len(COLOURS))
    channels = [np.interp(place_BB, anchors, COLOURS[:, c]) for c in range(3)]
    image = Image.fromarray(np.stack(channels, axis=-1).round().astype(np.uint8))
    size = (PIXELS * image.width, PIXELS * image.height)
    return _stored(image.resize(size, Image.Resampling.NEAREST), "PNG")


def _stored(image: Image.Image, kind: str, **options: bool) -> bytes:
    """Return the bytes of the file of a picture."""
    content = io.BytesIO()
    image.save(content, format=kind, **options)
    return content.getvalue()
