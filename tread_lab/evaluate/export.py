"""Weights out: the EMA of a run as safetensors, loaded again by path, and its model card."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
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
from tread_lab.data.caption_files import Captions, captions_of
from tread_lab.data.content import check_content
from tread_lab.data.exported import KEPT, keep_beside_weights
from tread_lab.data.source import open_data
from tread_lab.records.durable import FORMAT, replacing, write_json, write_text
from tread_lab.records.metric_names import value_text
from tread_lab.records.run_folder import CONFIG, DEFAULTS, EXPORTED, RunFolder
from tread_lab.train.assemble import Trained, trained
from tread_lab.train.provenance import named

SPEC, CARD = "spec.yaml", "README.md"


def export(folder: RunFolder, out: Path, *, step: int | None = None) -> dict[str, int]:
    """Write the EMA weights of a run and what belongs to them into a new folder.

    `model.safetensors` has the names of the network, for DiT those of its public code; its header
    holds the step. `spec.yaml` is the run's spec without folders of this machine,
    `config.json` the network and the digests of held-out data, decoder and frozen encoders,
    `evaluation_defaults.json` the sampler and reference of its experiment, `README.md` a model card
    in the layout of the Hugging Face hub. Names of classes, statistics of channels and held-out
    captions are copied from the data, where there are any.

    Args:
        step: of a checkpoint that is kept; `None` is the last one.

    Returns:
        The bytes of each file by name.

    Raises:
        UserError: the folder holds something else, or the run has no such checkpoint, or one that
            is not finite; or the data whose statistics or captions would be copied are others than
            it was trained on.
    """
    names = (EXPORTED, SPEC, CARD, CONFIG, DEFAULTS, *KEPT)
    if out.exists() and (not out.is_dir() or {p.name for p in out.iterdir()} - set(names)):
        raise UserError(f"{out} holds something else; name a new folder")
    model = trained(folder, torch.device("cpu"), step=step)
    _check_kept(model.spec, folder)
    spec = without_folders(model.spec)
    tensors = {name: t.contiguous() for name, t in model.network.state_dict().items()}
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise UserError(f"--step: must be one whose weights are finite, got {model.step}")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: cannot make this folder: {error.strerror}") from None
    with replacing(out / EXPORTED) as temporary:
        # of several facts safetensors leaves the order to chance, and a run has one file
        save_file(tensors, temporary, metadata={"step": str(model.step)})
    write_text(out / SPEC, dump_yaml({"format": FORMAT, **encode(spec)}))
    keep_beside_weights(out, model.spec.data, _heldout_captions(model.spec))
    data = named(spec.data)
    config = {
        "model_type": spec.model.backbone,
        "run": folder.name,
        "step": model.step,
        "model": encode(spec.model),
        **{name: getattr(spec.data, name) for name in ("channels", "size", "classes")},
        "heldout": _recorded(folder, f"held-out data {data}"),
        "decoder": _recorded(folder, f"decoder of {data}"),
        "trained_with": folder.trained_with(),
    }
    write_text(out / CONFIG, json.dumps(config, indent=1) + "\n")
    write_json(out / DEFAULTS, encode(folder.evaluation_defaults().without_folders()))
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
    elif start is not None and start.run is not None:
        start = replace(start, run=without_folders(start.run))
    parts: dict[str, Any] = {name: p.without_folders() for name, p in spec.systems.items()}
    return replace(spec, data=replace(spec.data, path=None), init_from=start, **parts)


def _check_kept(spec: RunSpec, folder: RunFolder) -> None:
    """Refuse statistics and captions of other data than the run's; absent data have none."""
    path = Path(spec.data.path or "").expanduser()
    copied = spec.data.normalised or spec.condition is not None
    if copied and spec.data.path is not None and path.exists():
        check_content(spec.data, folder.cache)


def _heldout_captions(spec: RunSpec) -> list[Captions] | None:
    """Return the held-out captions that images are drawn from, as far as the data are here."""
    if spec.condition is None:
        return None
    with contextlib.suppress(UserError):
        return captions_of(open_data(spec.data, "heldout"))
    return None


def _recorded(folder: RunFolder, name: str) -> str | None:
    """Return the digest of what a run was made or measured with, `None` if it has no record."""
    measured = ((evaluation.read() or {}).get("made_with") for evaluation in folder.evaluations())
    made = [*measured, *(attempt.fingerprint for attempt in folder.attempts())]
    return next((found[name] for found in reversed(made) if found and name in found), None)


def model_card(folder: RunFolder, spec: RunSpec, *, step: int) -> str:
    """Return the text of a model card: YAML for the hub, then sections for people.

    Args:
        folder: the record of the run, with its evaluations.
        spec: the run as the card shows it.
        step: of the weights; only measurements of this step are shown.
    """
    front = {
        "library_name": "tread-lab",
        "tags": ["diffusion", "tread", "token-routing", spec.process.kind, spec.model.backbone],
    }
    weights = f"EMA after {step} of {spec.train.steps} steps"
    if spec.train.steps == 0:
        weights = "as init_from names them, not trained here"
    head = dump_yaml(front)
    sections = [
        f"---\n{head}---",
        f"# {spec.model.name}, {run_label(spec)}",
        f"## Measured\n\n{_table([*_measured(folder, spec, step)])}",
        f"## How it was made\n\n{_provenance(folder, weights)}",
        _LOADING,
        f"## Spec\n\n```yaml\n{dump_yaml(encode(spec))}```",
    ]
    return "\n\n".join(sections) + "\n"


_LOADING = """## How to load it

```python
from tread_lab.evaluate.export import load_exported

model = load_exported("FOLDER")  # model.network(x, t, y), model.spec, model.process
```

`tread-lab evaluate FOLDER fd@1k` measures it. A DiT has the tensor names of DiT's public code.
Say here under which licence you give these weights."""


def _measured(folder: RunFolder, spec: RunSpec, step: int) -> Iterator[str]:
    """Yield a row for every metric of every evaluation of the step."""
    names = MetricNames(folder.evaluation_defaults())
    for evaluation in folder.evaluations():
        at = spec.train.steps if evaluation.step is None else evaluation.step
        tree = evaluation.read()  # `None` where it is damaged
        if tree is not None and int(tree.get("step", at)) == step:
            for metric, value in sorted(tree["metrics"].items()):
                name = names.name(metric, evaluation.path.name, tree["spec"])
                yield f"| `{name}` | {value_text(name, float(value))} | {_how(tree['spec'])} |"


def _how(tree: Mapping[str, Any]) -> str:
    if tree["kind"] != "samples":
        return f"{tree['images']} held-out images"
    sampler = tree["sampler"]
    guidance = sampler.get("guidance") or {}
    weight = guidance.get("weight", 1.0)
    said = f"guidance {weight:g}" if weight != 1 else "no guidance"
    drawn = f"{sampler['solver']} {sampler['steps']}, {said}{beyond_weight(guidance)}"
    return f"{tree['count']} samples, {drawn}"


def _table(rows: list[str]) -> str:
    if not rows:
        return "Nothing was measured at this step."
    note = "Held-out images are those of the spec's data; `fid` is Inception-2015's alone."
    return "\n".join(["| metric | value | how |", "|---|---|---|", *rows, "", note])


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
