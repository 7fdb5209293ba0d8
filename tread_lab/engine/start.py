"""The weights that a run starts from: its parent's last ones, or those of a file."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from tread_lab.backbones.published import check_fit, read_tensors
from tread_lab.backbones.published_sit import from_sit
from tread_lab.engine.assemble import build_network, no_init, weights_of
from tread_lab.records.lab import RunFolder
from tread_lab.records.parents import digest_of
from tread_lab.specs.errors import UserError
from tread_lab.specs.run import InitSpec, RunSpec
from tread_lab.specs.signature import signature


def starting_weights(spec: RunSpec, folder: RunFolder) -> dict[str, Tensor] | None:
    """Return the weights that `init_from` names, or `None` without it.

    Args:
        folder: of the run; its parent's lies beside it.

    Raises:
        UserError: the parent has no usable checkpoint, or the file is another one or does not fit.
    """
    start = spec.init_from
    if start is None:
        return None
    if start.run is not None:
        return weights_of(folder.sibling(signature(start.run)), start.weights)
    return _of_file(spec, start)


def check_start(spec: RunSpec) -> None:
    """Refuse a file whose weights the network of `spec` cannot have; a parent is not looked at.

    Raises:
        UserError: the file is another one, cannot be read, or a name or shape is wrong; or there
            are neither steps nor a start.
    """
    if spec.train.steps == 0 and spec.init_from is None:
        raise UserError("train.steps: 0 trains nothing; init_from says whose weights the run has")
    if spec.init_from is not None and spec.init_from.file is not None:
        _of_file(spec, spec.init_from)


def _of_file(spec: RunSpec, start: InitSpec) -> dict[str, Tensor]:
    path = Path(str(start.file))
    if start.digest is None:
        raise UserError("init_from: write `init_from: {file: PATH}`, so that its digest is taken")
    if digest_of(path) != start.digest:
        raise UserError(f"init_from.file: {path} has changed since the run was planned")
    state = read_tensors(path, start.weights)
    if start.published_as is not None and spec.process.kind != "flow":
        raise UserError(
            "init_from.published_as: a SiT predicts the velocity of a flow, and the process is"
            f" {spec.process.kind}; say process=flow"
        )
    with torch.device("meta"), no_init():
        network = build_network(spec)
    try:
        if start.published_as is not None:
            state = from_sit(state)
        check_fit(state, network)
    except UserError as error:
        raise UserError(f"init_from.file: {path} is not a {spec.model.name}: {error}") from None
    return state
