"""Weights out: the EMA of a run as safetensors with a model card, loaded again by path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
import yaml
from safetensors.torch import save_file

from tread_lab.engine.assemble import Trained, trained
from tread_lab.engine.model_card import model_card
from tread_lab.records.durable import replacing, write_text
from tread_lab.records.lab import EXPORTED, RunFolder
from tread_lab.specs.decode import encode
from tread_lab.specs.errors import UserError
from tread_lab.specs.run import RunSpec

SPEC, CARD, CONFIG = "spec.yaml", "README.md", "config.json"


def export(folder: RunFolder, out: Path, *, step: int | None = None) -> dict[str, int]:
    """Write the EMA weights of a run and what belongs to them into a new folder.

    `model.safetensors` has the names of the network, for DiT those of its public code; its header
    holds the run and the step. `spec.yaml` is the run's spec without folders of this machine,
    `config.json` the network and the sampler that it was measured with, `README.md` a model card in
    the layout of the Hugging Face hub.

    Args:
        step: of a checkpoint that is kept; `None` is the last one.

    Returns:
        The bytes of each file by name.

    Raises:
        UserError: the folder holds something else, or the run has no such checkpoint.
    """
    names = (EXPORTED, SPEC, CARD, CONFIG)
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
    config = {**_config(spec, model.step), "sampler": folder.recorded_sampler()}
    write_text(out / CONFIG, json.dumps(config, indent=1) + "\n")
    write_text(out / CARD, model_card(folder, spec, step=model.step))
    return {name: (out / name).stat().st_size for name in names}


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
    repa = None if spec.repa is None else replace(spec.repa, path=None)
    captions = None if spec.captions is None else replace(spec.captions, path=None)
    data = replace(spec.data, path=None)
    return replace(spec, data=data, repa=repa, captions=captions, init_from=start)


def _config(spec: RunSpec, step: int) -> Mapping[str, object]:
    data = {name: getattr(spec.data, name) for name in ("channels", "size", "classes")}
    return {"model_type": spec.model.backbone, "step": step, "model": encode(spec.model), **data}
