"""Weights out: the EMA of a run as safetensors with a model card, loaded again by path."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import save_file

from tread_lab.data.captions import Captions, captions_of
from tread_lab.data.exported import KEPT, keep_beside_weights
from tread_lab.data.source import open_data
from tread_lab.engine.assemble import Trained, trained
from tread_lab.engine.model_card import model_card
from tread_lab.engine.provenance import named
from tread_lab.records.durable import replacing, write_text
from tread_lab.records.lab import CONFIG, EXPORTED, RunFolder
from tread_lab.specs.decode import encode
from tread_lab.specs.errors import UserError
from tread_lab.specs.run import RunSpec

SPEC, CARD = "spec.yaml", "README.md"


def export(folder: RunFolder, out: Path, *, step: int | None = None) -> dict[str, int]:
    """Write the EMA weights of a run and what belongs to them into a new folder.

    `model.safetensors` has the names of the network, for DiT those of its public code; its header
    holds the run and the step. `spec.yaml` is the run's spec without folders of this machine,
    `config.json` the network, the sampler that it was measured with and the fingerprint of the
    held-out data, `README.md` a model card in the layout of the Hugging Face hub. Names of classes,
    statistics of channels and held-out captions are copied from the data, as far as there are any.

    Args:
        step: of a checkpoint that is kept; `None` is the last one.

    Returns:
        The bytes of each file by name.

    Raises:
        UserError: the folder holds something else, or the run has no such checkpoint.
    """
    names = (EXPORTED, SPEC, CARD, CONFIG, *KEPT)
    if out.exists() and (not out.is_dir() or {p.name for p in out.iterdir()} - set(names)):
        raise UserError(f"{out} holds something else; name a new folder")
    model = trained(folder, torch.device("cpu"), step=step)
    spec = without_folders(model.spec)
    tensors = {name: t.contiguous() for name, t in model.network.state_dict().items()}
    facts = {"format": "pt", "run": folder.name, "step": str(model.step), "weights": "ema"}
    out.mkdir(parents=True, exist_ok=True)
    with replacing(out / EXPORTED) as temporary:
        save_file(tensors, temporary, metadata=facts)
    write_text(out / SPEC, yaml.safe_dump(encode(spec), sort_keys=False))
    keep_beside_weights(out, model.spec.data, _heldout_captions(model.spec))
    config = {**_config(spec, model.step), "sampler": folder.recorded_sampler()}
    config |= {"heldout": _heldout_fingerprint(folder, spec)}
    write_text(out / CONFIG, json.dumps(config, indent=1) + "\n")
    write_text(out / CARD, model_card(folder, spec, step=model.step))
    return {name: (out / name).stat().st_size for name in names if (out / name).exists()}


def load_exported(path: str | Path, device: torch.device | str = "cpu") -> Trained:
    """Return the network of an exported folder in evaluation mode, and what belongs to it.

    Raises:
        UserError: no such folder, or its weights do not fit its spec.
    """
    folder = RunFolder(Path(path))
    if not folder.exported:
        raise UserError(f"{path} holds no {EXPORTED} with {SPEC}; `tread-lab export RUN OUT`")
    return trained(folder, torch.device(device))


def without_folders(spec: RunSpec) -> RunSpec:
    """Return the spec without the folders of data, encoders and starting weights; its signature is
    the same."""
    start = spec.init_from
    if start is not None and start.file is not None:
        start = replace(start, file=Path(start.file).name)
    parts: dict[str, Any] = {name: p.without_folders() for name, p in spec.systems.items()}
    return replace(spec, data=replace(spec.data, path=None), init_from=start, **parts)


def _heldout_captions(spec: RunSpec) -> list[Captions] | None:
    """Return the held-out captions that images are drawn from, as far as the data are here."""
    if spec.condition is None:
        return None
    with contextlib.suppress(UserError):
        return captions_of(open_data(spec.data, "heldout"))
    return None


def _heldout_fingerprint(folder: RunFolder, spec: RunSpec) -> str | None:
    """Return the fingerprint of the held-out data by the record of the run."""
    name = f"held-out data {named(spec.data)}"
    made = (attempt.made_with.get(name) for attempt in reversed(folder.attempts.read()))
    return next(filter(None, made), None)


def _config(spec: RunSpec, step: int) -> Mapping[str, object]:
    data = {name: getattr(spec.data, name) for name in ("channels", "size", "classes")}
    return {"model_type": spec.model.backbone, "step": step, "model": encode(spec.model), **data}
