"""The images of an evaluation, drawn by the processes of its run: each draws batches of its own."""

# B batch, C channels, H height, W width

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tread_lab.config.errors import NotFinite, UserError
from tread_lab.config.evaluation import SamplesSpec, Step
from tread_lab.config.guidance import routes_taken
from tread_lab.data.arrays import Parts, write_npz
from tread_lab.data.source import image_shape, open_data
from tread_lab.data.stored import ScaledLatents
from tread_lab.diffusion.generate import generate, images_a_call
from tread_lab.diffusion.guided import Denoiser
from tread_lab.evaluate.references import pixels
from tread_lab.records.durable import replacing
from tread_lab.records.run_folder import RunFolder
from tread_lab.routing.select import Routing
from tread_lab.train.assemble import Trained, trained
from tread_lab.train.device import check_precision
from tread_lab.train.joining import condition_of
from tread_lab.train.precision import EAGER, arithmetic, autocast, compile_for, matrix_products
from tread_lab.train.provenance import code_digest, plugins_of
from tread_lab.train.ranks import Ranks

PARTS = "parts"  # within the folder of an evaluation


class Drawing:
    """Draws the images of an evaluation; an image depends on its number only.

    Attributes:
        networks: networks of the guidance branches, by step.
        model: the network of the first branch.
        condition: condition in place of labels, or `None`.
    """

    def __init__(self, folder: RunFolder, spec: SamplesSpec, device: torch.device) -> None:
        self.folder, self.spec, self.device = folder, spec, device
        run, branches, at = folder.spec(), spec.sampler.guidance.branches, whole(spec.step)
        self.networks = {
            step: trained(folder, device, step=at if step is None else step, ema=spec.ema)
            for step in dict.fromkeys(branch.step for branch in branches)
        }
        for network in self.networks.values():
            compile_for(run, network.network, device)
        self.model = self.networks[branches[0].step]
        self.condition = condition_of(run, folder, device)
        self._data, self._batch = open_data(run.data, "heldout"), images_a_call(device.type)
        # A compiler makes every size anew, which pays with more than one batch.
        self._one_size = spec.images > self._batch and arithmetic(run, device.type) != EAGER
        if self._one_size and isinstance(self._data, ScaledLatents):
            self._data.compile_decoder()

    def parts(self) -> Parts:
        """Return the stored batches of images with their labels."""
        made = {"code": code_digest(), "device": self.device.type, "decoder": self._data.decoder}
        if self.condition is not None:
            made |= self.condition.fingerprint
        made |= {f"step {at}": f"{n.step}-{n.weights}" for at, n in self.networks.items()}
        made |= plugins_of(self.model.spec)
        folder = self.folder.evaluation(self.spec).path / PARTS
        return Parts(folder, made, self.spec.images, self._batch)

    def draw(self, rows: range) -> tuple[Tensor, Tensor]:
        """Return images, uint8, and labels of one batch; compiled networks draw a whole batch, of
        which only `rows` are kept.

        With a condition, the label is the number of the held-out sample of the condition.

        Raises:
            NotFinite: an image is not finite.
        """
        data, sampler, condition = self.model.spec.data, self.spec.sampler, self.condition
        options: dict[str, Any] = {"classes": data.classes}
        if condition is not None:
            options = {"classes": len(condition), "condition": condition.of}
        ((x_BCHW, labels_B),) = generate(
            {
                step: _denoiser(network, sampler.precision)
                for step, network in self.networks.items()
            },
            self.model.process,
            sampler,
            count=rows.start + self._batch if self._one_size else rows.stop,
            shape=(data.channels, data.size, data.size),
            **options,
            device=self.device,
            routes=routes_taken(self.model.spec, sampler.guidance),
            tokens=self.model.spec.tokens,
            start=rows.start,
        )
        if not x_BCHW[: len(rows)].isfinite().all():
            raise NotFinite(
                "samples: an image is not finite; draw it with less guidance, in a higher"
                " sampler.precision, or of other weights"
            )
        return pixels(self._data, x_BCHW)[: len(rows)], labels_B[: len(rows)]

    def progress(self, parts: Parts, described: int = 0) -> tuple[int, int]:
        """Return finished and total images; a drawn image counts half until it is measured."""
        share = 0.5 if self.spec.metrics else 0.0
        return round((1 - share) * parts.done + share * described), parts.count

    @functools.cached_property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of the images, by decoding one if necessary."""
        if (known := image_shape(self._data)) is not None:
            return known
        data = self.model.spec.data
        x_1CHW = torch.zeros(1, data.channels, data.size, data.size, device=self.device)
        C, H, W = pixels(self._data, x_1CHW).shape[1:]
        return C, H, W


class Writer(ThreadPoolExecutor):
    """Stores each batch while the next one is drawn; the next call raises its error."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(max_workers=1)
        self._parts, self._last = parts, Future[None]()
        self._last.set_result(None)

    def store(self, rows: range, images_BCHW: Tensor, labels_B: Tensor) -> None:
        """Begin to store a batch once the one before is stored."""
        arrays = {"images": images_BCHW.cpu().numpy(), "labels": labels_B.cpu().numpy()}
        self._last.result()
        self._last = self.submit(self._parts.write, rows, arrays)

    def wait(self) -> None:
        """Wait until all batches are stored."""
        self._last.result()


def draw_open(drawing: Drawing, parts: Parts, ranks: Ranks | None) -> Iterator[tuple[int, int]]:
    """As rank 0, draw the missing images, yielding the progress first and after each batch; can be
    closed and resumed. Each of n processes draws every n-th batch.
    """
    todo = parts.open_batches()
    yield drawing.progress(parts)
    if todo and ranks is not None and ranks.count > 1:
        ranks.told(functools.partial(_follow, drawing.folder.path, drawing.spec, todo))
        yield from _rounds(drawing, parts, todo, ranks)
    with Writer(parts) as writer:
        for rows in parts.open_batches():  # all, or what another process could not draw
            writer.store(rows, *drawing.draw(rows))
            yield drawing.progress(parts)
        writer.wait()


def _follow(
    path: Path, spec: SamplesSpec, todo: Sequence[range], device: torch.device, ranks: Ranks
) -> None:
    """Draw this process's own batches, until all are drawn or rank 0 stops."""
    drawing = Drawing(RunFolder(path), spec, device)
    for _ in _rounds(drawing, drawing.parts(), todo, ranks):
        pass


def _rounds(
    drawing: Drawing, parts: Parts, todo: Sequence[range], ranks: Ranks
) -> Iterator[tuple[int, int]]:
    """Draw a batch in each process, yielding as `draw_open` before it; in a last round all wait for
    their files. An error of any ends the rounds of all, and rank 0, which draws what is left, meets
    it again."""
    with Writer(parts) as writer:
        for k in range(0, len(todo) + ranks.count, ranks.count):
            try:
                yield drawing.progress(parts)
            except GeneratorExit:
                ranks.stop()
                raise
            if not ranks.go_on(k):
                return
            failed, own = torch.zeros(1), todo[k + ranks.index : k + ranks.index + 1]
            try:
                for rows in own:
                    writer.store(rows, *drawing.draw(rows))
                if not own:
                    writer.wait()
            except UserError:
                failed += 1
            if ranks.sum(failed):
                return


def whole(step: Step) -> int | None:
    """Return a step as a number, not a share."""
    assert not isinstance(step, str), step
    return step


def _denoiser(model: Trained, precision: str) -> Denoiser:
    """Return the raw network in the arithmetic of `precision`."""
    check_precision(precision, model.device)

    def denoiser(x: Tensor, t: Tensor, y: Tensor, routing: Routing | None) -> Tensor:
        with matrix_products(precision), autocast(precision, model.device):
            out: Tensor = model.network(x, t, y, routing)
        return out

    return denoiser


def write_samples(
    path: Path, parts: Parts, shape: tuple[int, int, int], labels: Sequence[int]
) -> None:
    """Write ADM's format: images `arr_0`, uint8 [N, H, W, C], and labels `arr_1`."""
    C, H, W = shape
    pixels = (part["images"].transpose(0, 2, 3, 1) for part in parts.read())
    members = {
        "arr_0": ((parts.count, H, W, C), np.uint8, pixels),
        "arr_1": ((parts.count,), np.int64, [np.array(labels)]),
    }
    write_npz(path, members)


def write_grid(path: Path, images_BCHW: Tensor, columns: int = 8) -> None:
    """Write images side by side on a white ground, small ones enlarged without smoothing."""
    B, C, H, W = images_BCHW.shape
    zoom, rows = 3 if H < 64 else 1, -(-B // columns)
    sheet = torch.full((C, rows * (H + 1) + 1, columns * (W + 1) + 1), 255, dtype=torch.uint8)
    for k, image in enumerate(images_BCHW):
        top, left = k // columns * (H + 1) + 1, k % columns * (W + 1) + 1
        sheet[:, top : top + H, left : left + W] = image
    array = sheet[:3].permute(1, 2, 0).numpy() if C >= 3 else sheet[0].numpy()
    picture = Image.fromarray(array)
    size = (picture.width * zoom, picture.height * zoom)
    with replacing(path) as temporary:
        picture.resize(size, Image.Resampling.NEAREST).save(temporary, format="PNG")
