"""YAML files and key=value overrides become plain trees, then specs; the only door to Hydra."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Transformer
from hydra.errors import HydraException

from tread_lab.config.decode import decode, decode_field, decode_value
from tread_lab.config.errors import Mistakes, UserError, near, placed, shown, suggest
from tread_lab.config.fields import (
    SHORT,
    TOP,
    all_fields,
    check_fields,
    leaves_of,
    merged,
    names_of,
    value_at,
)
from tread_lab.config.metrics import HELDOUT, ReferenceSpec
from tread_lab.config.registry import import_plugins
from tread_lab.config.run import RunSpec
from tread_lab.config.sweep import SPEND, STEPS, Experiment, SweepSpec, grid
from tread_lab.config.yaml_text import load_yaml

OWN = tuple(field.name for field in fields(SweepSpec))
_OF_EXPERIMENT = ("sampler", "reference")
_BESIDE = ("evaluate", "plugins", "question")  # what an experiment has beside these and its run
_OF_RUN = (*TOP, *SHORT, "then")
_WANDB = "--tracker wandb, with WANDB_PROJECT=NAME in the environment"
# Keys of other tools -> what does the same here.
_ELSEWHERE = {
    **{"hydra": "--root FOLDER, where all runs are stored", "wandb": _WANDB},
    **dict.fromkeys(("time_budget_s", "timeout"), "hours=1"),
}
_HERE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Override:
    """A command-line override `key=value` with its parsed value.

    Attributes:
        several: whether the value is a comma-separated list of axis values.
    """

    text: str
    key: str
    value: Any
    several: bool = False

    @property
    def head(self) -> str:
        return self.key.partition(".")[0]

    @property
    def unknown(self) -> UserError:
        """Error for an unknown key, with the likely override."""
        known = (*all_fields(SweepSpec), *_OF_RUN, *_OF_EXPERIMENT, *all_fields())
        meant = near(self.key, known)
        name, example, written = (meant or "train.lr: 1e-3").partition(": ")
        remedy = f"'{name}={written}'" if example else f"{name}={self.text.partition('=')[2]}"
        remedy = _ELSEWHERE.get(self.head, remedy)
        return UserError(f"{self.text}: unknown key {self.key!r}. Try {remedy}.")


def find(name: str, *kinds: str) -> Path:
    """Return the YAML file of a name: a path, a file in a folder named for its kind, or a shipped
    file.

    Args:
        kinds: `sweeps`, `experiments` or both.

    Raises:
        UserError: not found; suggests a near miss.
    """
    file = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    folders = [folder for kind in kinds for folder in (Path(kind), shipped_folder(kind))]
    for folder in (Path(), *folders, *(folder.parent for folder in folders)):
        if os.path.isfile(folder / file):  # noqa: PTH113 (that of a path raises at long names)
            return (folder / file).absolute()
    names = {path.stem for folder in (Path(), *folders) for path in folder.glob("*.yaml")}
    what, where = kinds[0].removesuffix("s"), " or ".join(f"{kind}/" for kind in kinds)
    raise UserError(f"{what}: must be here or in {where}, got {name!r}{suggest(file.stem, names)}")


def shipped_folder(kind: str) -> Path:
    """Return the folder of the shipped `sweeps` or `experiments`, installed or in a checkout."""
    installed = _HERE / "shipped" / kind
    return installed if installed.is_dir() else _HERE.parent / kind


def load_experiment(name: str, overrides: Sequence[str] = ()) -> Experiment:
    """Return the experiment `name` with `key=value` overrides.

    Raises:
        UserError: a missing file, invalid YAML, or an unknown key.
    """
    typed = _single(overrides, f"tread-lab sweep {name}")
    for override in typed:
        if override.head not in (*_OF_RUN, *_OF_EXPERIMENT, *_BESIDE):
            raise override.unknown
    return _experiment(name, typed)


def _experiment(
    name: str, overrides: Iterable[Override], plugins: Sequence[str] = (), written: Any = None
) -> Experiment:
    tree = _tree(find(name, "experiments")) if written is None else dict(written)
    for override in overrides:
        tree = merged(RunSpec, tree, {override.key: override.value})
    own = {key: tree.pop(key) for key in (*_OF_EXPERIMENT, *_BESIDE) if key in tree}
    with placed(name):
        names = decode_value(tuple[str, ...], own.pop("plugins", ()), "plugins")
    import_plugins(names)
    if every := [*dict.fromkeys((*names, *plugins))]:
        tree = merged(RunSpec, tree, {"execution.plugins": every})
    check_fields((("", *item) for item in leaves_of(tree).items()), others={*TOP, *own})
    own["reference"] = reference_of(own.get("reference"))
    own.pop("question", None)
    with placed(name):
        return decode(Experiment, {"name": Path(name).stem, "run": tree, **own})


def reference_of(written: Any) -> ReferenceSpec | None:
    """Return the reference of a name, path or tree; `None` for held-out images."""
    return None if written in (None, HELDOUT) else decode(ReferenceSpec, written, "reference")


def sampler_settings(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the dotted sampler fields of overrides such as `sampler.steps=10`.

    Raises:
        UserError: not a sampler field, or an invalid value.
    """
    typed = _single(overrides, "one evaluation for each")
    for override in typed:
        if not override.key.startswith("sampler."):
            raise UserError(f"{override.text}: must be a sampler field. Try sampler.steps=40.")
    return {override.key.removeprefix("sampler."): override.value for override in typed}


def evaluations_of(words: Sequence[str]) -> list[Any]:
    """Return evaluations as in a file: `{heldout_loss: {images: 64}}` becomes a mapping.

    Raises:
        UserError: invalid text in braces.
    """
    return [load_yaml(word, repr(word)) if word.startswith("{") else word for word in words]


def load_sweep(name: str, overrides: Sequence[str] = ()) -> tuple[str, SweepSpec, Experiment]:
    """Return (name, sweep, experiment) of a sweep file; an experiment file means {experiment:
    NAME}.

    Later sources take precedence: field defaults, files under `defaults`, the experiment, `fixed`,
    axes, overrides. An override sets a key of the sweep file (`seeds=[0,1]`), the experiment's
    sampler or reference, or else `fixed` (`train.steps=200`). Comma-separated values make an axis
    (`train.lr=1e-3,3e-3`); a single value for an axis replaces its values.

    Raises:
        UserError: lists every mistake in keys, fields and values.
    """
    path, wrong = find(name, "sweeps", "experiments"), Mistakes()
    tree = _tree(path)
    if "experiment" not in tree and tree.keys() & {*TOP}:
        tree = {"experiment": name}
    tree, of_experiment = _typed(tree, overrides)
    plugins = decode_value(tuple[str, ...], tree.get("plugins", ()), "plugins")
    import_plugins(plugins)
    own, sweep = dict[str, Any](), SweepSpec(experiment="")
    experiment = Experiment(name=path.stem, run={})
    if "experiment" not in tree:
        missing = "experiment: must be a base run, got none. Try experiment: tiny."
        wrong.append(f"{path.name}: {missing}")
    for key, value in tree.items():
        with wrong, placed(path.name):
            own[key] = decode_field(SweepSpec, key, value)
    with wrong, placed(path.name):
        sweep = SweepSpec(**{"experiment": "", **own})
    if base := sweep.experiment:
        named, written = (base, None) if isinstance(base, str) else (path.stem, base)
        with wrong:
            experiment = _experiment(named, of_experiment, plugins, written)
    with wrong:
        _check_written(sweep)
    wrong.check()
    return path.stem, sweep, experiment


def _typed(
    tree: Mapping[str, Any], overrides: Sequence[str]
) -> tuple[dict[str, Any], list[Override]]:
    """Return the tree of a sweep file with what is typed of it and of its runs, whose fields take
    the place of what the file fixes, and the overrides of the experiment."""
    tree = {key: _nested(x, {}) if key.endswith("axes") else x for key, x in tree.items()}
    typed, varied, of_experiment = dict[str, Any](), dict[str, Any](), list[Override]()
    for override in map(_parsed, overrides):
        key, head = override.key, override.head
        values = override.value if override.several else [override.value]
        section, axis = ("sampler_axes", key[8:]) if head == "sampler" else ("axes", key)
        if head in OWN:
            tree = merged(RunSpec, tree, {key: override.value})
        elif head not in (*_OF_RUN, *_OF_EXPERIMENT, *(tree.get("variants") or ())):
            raise override.unknown
        elif key == "seed":
            tree["seeds"] = values
        elif override.several or _varies(tree, section, axis):
            tree[section] = _nested(tree.get(section) or {}, {axis: values})
            varied[key] = values[0]
            if section == "axes" and not override.several:
                tree["trials"] = _trials(tree.get("trials", ()), {key: override.value})
        elif head in _OF_EXPERIMENT:
            of_experiment.append(override)
        else:
            typed |= leaves_of({key: override.value})
    if isinstance(fixed := tree.get("fixed", {}), Mapping):
        taken = names_of({**typed, **varied}).keys()
        parts = tuple(f"{name}." for name in (*typed, *varied))
        kept = {
            name: value
            for name, value in leaves_of(fixed).items()
            if not names_of({name: value}).keys() <= taken and not name.startswith(parts)
        }
        tree["fixed"] = {**kept, **typed}
    return tree, of_experiment


def _trials(trials: Any, typed: Mapping[str, Any]) -> Any:
    """Return the listed cells, each with the only value of an axis where it sets no other."""
    if not isinstance(trials, list | tuple):
        return trials
    return [
        {**typed, **cell}
        if isinstance(cell, Mapping)
        and not names_of(typed).keys() & names_of(leaves_of(cell)).keys()
        else cell
        for cell in trials
    ]


def _varies(tree: Mapping[str, Any], section: str, axis: str) -> bool:
    """Return whether a field is an axis of a sweep file, or the name of its variants."""
    grids = tree.get(section) or {}
    for axes in grids if isinstance(grids, list) else [grids]:
        with contextlib.suppress(LookupError):
            values = value_at(axes, axis.split("."))
            return axis == "route" or not isinstance(values, Mapping)
    return section == "axes" and axis in (tree.get("variants") or ())


def _nested(axes: Any, over: Mapping[str, Any]) -> Any:
    """Return a grid of axes, or each of a list of grids, with some axes set; names are nested."""
    if isinstance(axes, list):
        return [_nested(one, over) for one in axes]
    return merged(None, merged(None, {}, axes), over) if isinstance(axes, Mapping) else axes


def _check_written(sweep: SweepSpec) -> None:
    """Refuse fields that no run has and values that they cannot have, unknown variants, a seed
    beside `seeds`, steps that `match` decides, and `spend` without it.

    Raises:
        UserError: every one of them.
    """
    wrong, variants = Mistakes(), sweep.variants
    parts = {"": sweep.fixed, "baseline.": sweep.baseline or {}}
    for key, listed in (("controls", sweep.controls), ("trials", sweep.trials)):
        parts |= {f"{key}[{k}].": part for k, part in enumerate(listed)}
    for axis, named in variants.items():
        parts |= {f"variants.{axis}.{name}.": part for name, part in named.items()}
    written = [(place, *item) for place, part in parts.items() for item in leaves_of(part).items()]
    with wrong:
        cells = grid(sweep.axes, "axes")
        items = {repr(item): item for cell in cells for item in cell.items()}.values()
        written += [("axes.", *item) for item in items]
    for place, name, value in written:
        with wrong, placed(f"{place}{name}"):
            if name == "seed":
                raise UserError(
                    "must be set by `seeds`, so that baselines share it. Try seeds=[0]."
                )
            if name == SPEND and sweep.match is None:
                raise UserError("requires `match`. Try match: train_flops.")
            if name.endswith(STEPS) and sweep.match and place not in ("", "baseline."):
                raise UserError(
                    "must not be set, because `match` determines it. Try the axis spend: [0.5, 1]."
                )
            if name in variants and value not in [*variants[name]]:
                raise UserError(f"no variant {value!r}{suggest(str(value), variants[name])}")
    with wrong:
        check_fields(item for item in written if item[1] not in (SPEND, "seed", *variants))
    wrong.check()


def _single(overrides: Iterable[str], several: str) -> list[Override]:
    """Return overrides of one value each.

    Args:
        several: what takes several values.
    """
    typed = list(map(_parsed, overrides))
    for override in typed:
        if override.several:
            got = f"must be one value, got {len(override.value)}"
            raise UserError(f"{override.key}: {got}. Try {several} {override.text}.")
    return typed


def _parsed(override: str) -> Override:
    """Return an override in Hydra's grammar; a scalar is read as in a file, and so is a value that
    the grammar does not know, so that arrows and expressions need no quotes of their own.

    Raises:
        UserError: it is none; names key and remedy.
    """
    key, equals, written = override.partition("=")
    if key.startswith(("+", "~")):
        remedy = override.lstrip("+") if equals else f"{key[1:]}=null"
        raise UserError(f"{override}: must not begin with {key[0]}. Try {remedy}.")
    if not equals:
        meant = near(key, all_fields())
        raise UserError(f"{key}: must be key=value" + (f". Try {meant}=VALUE." if meant else ""))
    with contextlib.suppress(HydraException):
        parsed = OverridesParser.create().parse_override(override)
        if parsed.is_sweep_override() and "(" in written:  # choice(...) and range(...)
            values = [*parsed.sweep_iterator(transformer=Transformer.identity)]
            return Override(override, key, values, several=True)
        if isinstance(parsed.value(), dict | list):
            return Override(override, key, parsed.value())
    items = load_yaml(written if "(" in written else f"[{written}]", repr(override))
    several = isinstance(items, list) and len(items) > 1
    value = items if several else load_yaml(written, repr(override))
    return Override(override, key, value, several=several)


def _tree(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the tree of a file, merged in order with the files that its `defaults` name.

    Args:
        above: the files that named this one.

    Raises:
        UserError: a file cannot be read, is not YAML, or names itself.
    """
    try:
        tree = load_yaml(path.read_text(encoding="utf-8-sig"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: must be a readable text file, got {error}") from None
    if not isinstance(tree, dict) or not tree:
        raise UserError(f"{path}: must be `key: value` lines, got {shown(tree)}")
    own = {str(key): value for key, value in tree.items()}
    names = own.pop("defaults", [])
    if path in above or not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise UserError(f"{path}: defaults: must be names of other files, got {shown(names)}")
    files = dict[str, Any]()
    for name in names if "_self_" in names else [*names, "_self_"]:
        beside = path.with_name(f"{name}.yaml")
        file = beside if beside.is_file() else shipped_folder("experiments") / beside.name
        files = merged(RunSpec, files, own if name == "_self_" else _tree(file, (*above, path)))
    return files
