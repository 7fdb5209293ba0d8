"""The images of an evaluation, drawn in batches by the processes of its run: each has its own."""

# B batch, C channels, H height, W width

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tread_lab.data.source import open_data
from tread_lab.engine.assemble import Trained, trained
from tread_lab.engine.compiled import compile_for
from tread_lab.engine.device import check_precision, finish, to_host
from tread_lab.engine.precision import autocast, matrix_products
from tread_lab.engine.ranks import Ranks
from tread_lab.engine.sample_scores import pixels
from tread_lab.engine.system import condition_of
from tread_lab.records.run_folder import RunFolder
from tread_lab.routing.select import Routing
from tread_lab.sampling.generate import generate, images_a_call
from tread_lab.sampling.guidance import Denoiser
from tread_lab.specs.errors import NotFinite, Unavailable, UserError
from tread_lab.specs.evaluation import SamplesSpec, Step
from tread_lab.specs.guidance import routes_taken


class Drawing:
    """What draws the images of an evaluation; an image depends on its number alone.

    Attributes:
        networks: of each branch of the guidance, by the step that the branch names.
        model: the network of the first branch.
        condition: what the network sees beside noise and level, `None` where it sees labels.
    """

    def __init__(self, folder: RunFolder, spec: SamplesSpec, device: torch.device) -> None:
        self.folder, self.spec, self.device = folder, spec, device
        run, branches, at = folder.spec(), spec.sampler.guidance.branches, whole(spec.step)
        self.networks = {
            b.step: trained(folder, device, step=at if b.step is None else b.step) for b in branches
        }
        for network in self.networks.values():
            compile_for(run, network.network, device)
        self.model = self.networks[branches[0].step]
        self.condition = condition_of(run, folder, device)
        self._data = open_data(run.data, "heldout")

    @property
    def fingerprint(self) -> dict[str, str]:
        """Step that a branch names -> the step and the digest of the weights it has."""
        return {f"step {at}": f"{n.step}-{n.weights}" for at, n in self.networks.items()}

    def batches(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (images, labels) from image `start` up to `stop`, uint8, batch by batch.

        The label of an image that is drawn from a condition is the number of the held-out sample
        whose condition it is.

        Raises:
            NotFinite: an image is not finite, which would become a black one.
        """
        data, sampler, condition = self.model.spec.data, self.spec.sampler, self.condition
        options: dict[str, Any] = {"classes": data.classes}
        if condition is not None:
            options = {"classes": len(condition), "condition": condition.of}
        generated = generate(
            {
                step: _denoiser(network, sampler.precision)
                for step, network in self.networks.items()
            },
            self.model.process,
            sampler,
            count=stop,
            shape=(data.channels, data.size, data.size),
            **options,
            device=self.device,
            routes=routes_taken(self.model.spec, sampler.guidance),
            tokens=self.model.spec.tokens,
            start=start,
        )
        for x_BCHW, labels_B in generated:
            if not x_BCHW.isfinite().all():
                raise NotFinite(
                    "samples: an image is not finite; draw it with less guidance, in a higher"
                    " sampler.precision, or of other weights"
                )
            yield pixels(self._data, x_BCHW), labels_B


def drawn(drawing: Drawing, ranks: Ranks | None, *, start: int) -> Generator[tuple[Tensor, Tensor]]:
    """As rank 0, yield every batch from image `start` on; of n processes each draws every n-th."""
    folder, spec = drawing.folder, drawing.spec
    if ranks is None or ranks.count == 1:
        yield from drawing.batches(start, spec.count)
        return
    ranks.told(partial(_follow, folder.path, spec, start))
    for stop, everyone in _rounds(drawing, ranks, start):
        try:
            if any(weights != drawing.fingerprint for weights, _ in everyone):
                raise Unavailable(
                    f"the weights in {folder.path} were replaced while the processes of an"
                    " evaluation read them; the same command measures the new ones"
                )
            for batch in (batch for _, batches in everyone for batch in batches):
                if isinstance(batch, UserError):
                    raise batch
                images_BCHW, labels_B = batch
                yield images_BCHW.to(drawing.device), labels_B.to(drawing.device)
        except (GeneratorExit, UserError):
            if stop < spec.count:
                ranks.stop()
            raise


def _follow(path: Path, spec: SamplesSpec, start: int, device: torch.device, ranks: Ranks) -> None:
    """Draw this process's own batches for rank 0, until all are drawn or rank 0 stops."""
    for _ in _rounds(Drawing(RunFolder(path), spec, device), ranks, start):
        pass


Batches = list[tuple[Tensor, Tensor] | UserError]  # an error of the user ends them


def _rounds(
    drawing: Drawing, ranks: Ranks, start: int
) -> Iterator[tuple[int, list[tuple[dict[str, str], Batches]]]]:
    """Yield the weights and the batch of each process, with the image that comes after them.

    Rank 0 alone has those of the others.
    """
    count, size = drawing.spec.count, images_a_call(drawing.device.type)
    for first in range(start, count, size * ranks.count):
        if not ranks.go_on(first):
            return
        own = first + size * ranks.index
        drawn_here: Batches = []
        try:
            for images_BCHW, labels_B in drawing.batches(own, min(own + size, count)):
                drawn_here.append((to_host(images_BCHW), to_host(labels_B)))
        except UserError as error:  # rank 0 raises it, and all stay in step
            drawn_here.append(error)
        finish(drawing.device)
        everyone = ranks.gathered((drawing.fingerprint, drawn_here))
        yield first + size * ranks.count, everyone


def whole(step: Step) -> int | None:
    """Return a step that is no share of all steps any more."""
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
