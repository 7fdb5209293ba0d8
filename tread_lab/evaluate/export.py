"""Weights out: the EMA of a run as safetensors, loaded again by path, and its model card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tread_lab.config.decode import encode
from tread_lab.config.errors import UserError
from tread_lab.config.guidance import beyond_weight
from tread_lab.config.labels import MetricNames, run_label
from tread_lab.config.run import RunSpec
from tread_lab.config.yaml_text import dump_yaml
from tread_lab.records.durable import FORMAT, replacing, write_json, write_text
from tread_lab.records.metric_names import value_text
from tread_lab.records.run_folder import CONFIG, DEFAULTS, EXPORTED, RunFolder
from tread_lab.train.assemble import Trained, trained

SPEC, CARD = "spec.yaml", "README.md"


def export(folder: RunFolder, out: Path, *, step: int | None = None) -> dict[str, int]:
    """Write the EMA weights of a run with metadata into a new folder.

    `model.safetensors` uses the network's tensor names, for DiT those of its public code; its
    header has the step. `spec.yaml` is the run's spec without local paths, `config.json` the
    network and the digests of frozen encoders, `evaluation_defaults.json` the sampler and reference
    of its experiment, `README.md` a model card in the layout of the Hugging Face hub.

    Args:
        step: step of a kept checkpoint; `None` is the last.

    Returns:
        The bytes of each file by name.

    Raises:
        UserError: a non-empty folder, a missing checkpoint, or non-finite weights.
    """
    names = (EXPORTED, SPEC, CARD, CONFIG, DEFAULTS)
    if out.exists() and (not out.is_dir() or {p.name for p in out.iterdir()} - set(names)):
        raise UserError(f"{out}: must be a new or empty folder. Try another name.")
    model = trained(folder, torch.device("cpu"), step=step)
    spec = without_folders(model.spec)
    tensors = {name: t.contiguous() for name, t in model.network.state_dict().items()}
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise UserError(f"--step: must have finite weights, got {model.step}")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: cannot make this folder: {error.strerror}") from None
    with replacing(out / EXPORTED) as temporary:
        # of several facts safetensors leaves the order to chance, and a run has one file
        save_file(tensors, temporary, metadata={"step": str(model.step)})
    write_text(out / SPEC, dump_yaml({"format": FORMAT, **encode(spec)}))
    config = {
        "model_type": spec.model.backbone,
        "run": folder.name,
        "step": model.step,
        "model": encode(spec.model),
        **{name: getattr(spec.data, name) for name in ("channels", "size", "classes")},
        "trained_with": folder.trained_with(),
    }
    write_json(out / CONFIG, config)
    write_json(out / DEFAULTS, encode(folder.evaluation_defaults().without_folders()))
    write_text(out / CARD, model_card(folder, spec, step=model.step))
    return {name: (out / name).stat().st_size for name in names if (out / name).exists()}


def load_exported(path: str | Path, device: torch.device | str = "cpu") -> Trained:
    """Return the network of an exported folder in evaluation mode, with its metadata.

    Raises:
        UserError: a missing folder, or weights that do not fit its spec.
    """
    folder = RunFolder(Path(path))
    if not folder.exported:
        raise UserError(
            f"{path} must contain {EXPORTED} and {SPEC}. Try `tread-lab export RUN OUT`."
        )
    return trained(folder, torch.device(device))


def without_folders(spec: RunSpec) -> RunSpec:
    """Return the spec without paths of data, encoders and starting weights; the signature stays."""
    start = spec.init_from
    if start is not None and start.file is not None:
        start = replace(start, file=Path(start.file).name)
    elif start is not None and start.run is not None:
        start = replace(start, run=without_folders(start.run))
    parts: dict[str, Any] = {name: p.without_folders() for name, p in spec.systems.items()}
    return replace(spec, data=replace(spec.data, path=None), init_from=start, **parts)


def model_card(folder: RunFolder, spec: RunSpec, *, step: int) -> str:
    """Return the text of a model card: YAML for the hub, then sections for people.

    Args:
        folder: the record of the run, with its evaluations.
        spec: spec of the run.
        step: step of the weights; only its evaluations are shown.
    """
    front = {
        "library_name": "tread-lab",
        "tags": ["diffusion", "tread", "token-routing", spec.process.kind, spec.model.backbone],
    }
    weights = f"EMA after {step} of {spec.train.steps} steps"
    if spec.train.steps == 0:
        weights = "as init_from names them, not trained here"
    sections = [
        f"---\n{dump_yaml(front)}---",
        f"# {spec.model.name}, {run_label(spec)}",
        f"## Measured\n\n{_measured(folder, spec, step)}",
        f"## How it was made\n\n{_provenance(folder, weights)}",
        _LOADING,
        f"## Spec\n\n```yaml\n{dump_yaml(encode(spec))}```",
    ]
    return "\n\n".join(sections) + "\n"


_LOADING = (
    "## How to load it\n\n```python\nfrom tread_lab.evaluate.export import load_exported\n\nmodel ="
    ' load_exported("FOLDER")  # model.network(x, t, y), model.spec, model.process\n```'
    "\n\n`tread-lab evaluate FOLDER fd@1k` evaluates it. Tensor names of a DiT equal those of its"
    " public code.\nAdd the licence of these weights here."
)


def _measured(folder: RunFolder, spec: RunSpec, step: int) -> str:
    """Return a table with a row for every metric of every evaluation of the step."""
    names, rows = MetricNames(folder.evaluation_defaults()), list[str]()
    for evaluation in folder.evaluations():
        at = spec.train.steps if evaluation.step is None else evaluation.step
        tree = evaluation.read()  # `None` where it is damaged
        if tree is not None and int(tree.get("step", at)) == step:
            for metric, value in sorted(tree["metrics"].items()):
                name = names.name(metric, evaluation.path.name, tree["spec"])
                rows.append(
                    f"| `{name}` | {value_text(name, float(value))} | {_how(tree['spec'])} |"
                )
    if not rows:
        return "Nothing was measured at this step."
    note = "Held-out images are those of the spec's data; `fid` is Inception-2015's alone."
    return "\n".join(["| metric | value | how |", "|---|---|---|", *rows, "", note])


def _how(tree: Mapping[str, Any]) -> str:
    if tree["kind"] != "samples":
        return f"{tree['images']} held-out images"
    sampler = tree["sampler"]
    guidance = sampler.get("guidance") or {}
    weight = guidance.get("weight", 1.0)
    said = f"guidance {weight:g}" if weight != 1 else "no guidance"
    drawn = f"{sampler['solver']} {sampler['steps']}, {said}{beyond_weight(guidance)}"
    return f"{tree['count']} samples, {drawn}"


def _provenance(folder: RunFolder, weights: str) -> str:
    """Return code, packages and data of the last attempt; no folder of its machine."""
    origin = (folder.origin() or [{}])[-1]
    found = next((a.fingerprint for a in reversed(folder.attempts()) if a.fingerprint), {})
    packages = ", ".join(f"{name} {v}" for name, v in (origin.get("packages") or {}).items())
    facts = {
        "run": folder.name,
        "weights": weights,
        "source": origin.get("code"),
        "packages": packages,
        "device": origin.get("device"),
        **{" ".join(w for w in name.split() if "/" not in w): d for name, d in found.items()},
    }
    return "\n".join(f"- {name}: {value or 'not recorded'}" for name, value in facts.items())
