"""YAML files and key=value overrides become plain trees, then specs; the only door to Hydra."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Transformer
from hydra.errors import HydraException

from tread_lab.config.axes import grid
from tread_lab.config.decode import decode, decode_field, decode_value, fields_of
from tread_lab.config.errors import Mistakes, UserError, near, placed, shown, suggest
from tread_lab.config.fields import (
    SHORT,
    TOP,
    all_fields,
    check_fields,
    is_computed,
    leaves_of,
    merged,
    names_of,
    value_at,
)
from tread_lab.config.lengths import SPEND, STEPS
from tread_lab.config.metrics import HELDOUT, ReferenceSpec, is_reference_file
from tread_lab.config.registry import import_plugins
from tread_lab.config.run import RunSpec
from tread_lab.config.sweep import Experiment, SweepSpec
from tread_lab.config.yaml_text import load_yaml

OWN = tuple(field.name for field in fields(SweepSpec))
_OF_EXPERIMENT = ("sampler", "reference")
_BESIDE = ("evaluate", "plugins", "question")  # what an experiment has beside these and its run
_OF_RUN = (*TOP, *SHORT, "then")
_AXES = ("axes", "sampler_axes")
# Keys of other tools -> what does the same here.
_ELSEWHERE = {
    **{"hydra": "--root FOLDER, where all runs are stored", "wandb": "--tracker wandb"},
    **dict.fromkeys(("time_budget_s", "timeout"), "hours=1"),
}
_HERE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Override:
    """`key=value` as it was typed, with its value.

    Attributes:
        several: whether the value lists the values of an axis, typed with commas between them.
    """

    text: str
    key: str
    value: Any
    several: bool = False


def find(kind: str, name: str, *others: str) -> Path:
    """Return the YAML file of a name: as given, in the current folder's `kind`/, or as shipped.

    A name in another folder is no shipped file.

    Args:
        others: further kinds of files that the name may be of.

    Raises:
        UserError: it is nowhere; a near miss is suggested.
    """
    file = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    kinds = (kind, *others)
    for folder in kinds:
        shipped = [shipped_folder(folder) / file.name] if file.parent.name in ("", folder) else []
        for candidate in (file, Path(folder) / file, *shipped):
            if os.path.isfile(candidate):  # noqa: PTH113 (that of a path raises at long names)
                return candidate.absolute()
    folders = [place for each in kinds for place in (Path(each), shipped_folder(each))]
    names = {path.stem for folder in folders for path in folder.glob("*.yaml")}
    what, where = kind.removesuffix("s"), " or ".join(f"{each}/" for each in kinds)
    raise UserError(f"no {what} {name!r} here or in {where}{suggest(file.stem, names)}")


def shipped_folder(kind: str) -> Path:
    """Return the folder of the shipped `sweeps` or `experiments`, installed or in a checkout."""
    installed = _HERE / "shipped" / kind
    return installed if installed.is_dir() else _HERE.parent / kind


def load_experiment(name: str, overrides: Sequence[str] = ()) -> Experiment:
    """Return the experiment `name` with `key=value` overrides.

    Raises:
        UserError: no such file, not YAML, or a key that no experiment has.
    """
    typed = _single(overrides, f"tread-lab sweep {name}")
    for override in typed:
        if override.key.partition(".")[0] not in (*_OF_RUN, *_OF_EXPERIMENT, *_BESIDE):
            raise UserError(f"{override.text}: unknown key {override.key!r}{_remedy(override)}")
    return _experiment(name, typed)


def _experiment(
    name: str, overrides: Iterable[Override], plugins: Sequence[str] = ()
) -> Experiment:
    tree = _tree(find("experiments", name))
    for override in overrides:
        tree = _over(tree, {override.key: override.value})
    tree = _absolute_paths(tree)
    extra = {key: tree.pop(key, None) for key in (*_OF_EXPERIMENT, *_BESIDE)}
    extra.pop("question")
    with placed(name):
        names = decode_value(tuple[str, ...], extra.pop("plugins") or (), "plugins")
    import_plugins(names)
    before = leaves_of(tree).get("execution.plugins") or ()
    if every := [*dict.fromkeys((*before, *names, *plugins))]:
        tree = merged(RunSpec, tree, {"execution.plugins": every})
    check_fields(leaves_of(tree).items(), others={*TOP, *extra})
    written = {key: value for key, value in extra.items() if value is not None}
    written["reference"] = reference_of(extra["reference"])
    return decode(Experiment, {"name": Path(name).stem, "run": tree, **written}, name)


def reference_of(written: Any) -> ReferenceSpec | None:
    """Return the reference that a name, a path or a tree says; `None` for held-out images."""
    if written is None or written == HELDOUT:
        return None
    return decode(ReferenceSpec, _absolute_paths(written, ".reference"), "reference")


def _absolute_paths(tree: Any, field: str = "") -> Any:
    """Return settings whose paths of data and references a worker in another folder finds."""
    if isinstance(tree, Mapping):
        return {str(k): _absolute_paths(value, f"{field}.{k}") for k, value in tree.items()}
    if isinstance(tree, list):
        return [_absolute_paths(item, field) for item in tree]
    is_file = field.endswith(".reference") and is_reference_file(tree)
    is_path = field.endswith((".data.path", ".reference.path")) and isinstance(tree, str)
    if not (is_file or is_path) or is_computed(tree):
        return tree
    return str(Path(tree).expanduser().absolute())


def sampler_settings(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the dotted fields of the sampler that `sampler.steps=10` and its like set.

    Raises:
        UserError: another field, or a value that cannot be read.
    """
    typed = _single(overrides, "one evaluation for each")
    for override in typed:
        if not override.key.startswith("sampler."):
            raise UserError(f"{override.text}: must be of the sampler. Try sampler.steps=40.")
    return {override.key.removeprefix("sampler."): override.value for override in typed}


def evaluations_of(words: Sequence[str]) -> list[Any]:
    """Return evaluations as a file has them: `{heldout_loss: {images: 64}}` is a mapping.

    Raises:
        UserError: a word in braces cannot be read.
    """
    written = [load_yaml(word, repr(word)) if word.startswith("{") else word for word in words]
    return [_absolute_paths(item) for item in written]


def find_sweep(name: str) -> Path:
    """Return the file of a sweep, or of an experiment, which is a sweep of its base run."""
    return find("sweeps", name, "experiments")


def load_sweep(name: str, overrides: Sequence[str] = ()) -> tuple[str, SweepSpec, Experiment]:
    """Return (name, sweep, experiment) of a sweep file; an experiment's is {experiment: NAME}.

    Each setting is the last of this order that says it: the defaults of the fields, the files that
    `defaults` name, the experiment, `fixed` of the sweep file, its axes, and overrides as they are
    typed. An override belongs to the sweep file if its first key does (`seeds=[0,1]`), to the
    experiment if it is of its sampler or reference, else to `fixed` (`train.steps=200`). Several
    values with commas between them are an axis (`train.lr=1e-3,3e-3`), and one value of a field
    that is an axis is its only value. Where a file has no experiment, what it fixes is its base
    run, and what is typed alone is fixed.

    Raises:
        UserError: every mistake of the file's own keys, of its fields and of their values.
    """
    path, wrong = find_sweep(name), Mistakes()
    tree = _tree(path)
    if "experiment" not in tree and tree.keys() & {*TOP}:
        tree = {"experiment": name}
    tree, typed, of_experiment = _typed(tree, overrides)
    base = tree.get("experiment")
    plugins = decode_value(tuple[str, ...], tree.get("plugins", ()), "plugins")
    import_plugins(plugins)
    experiment = Experiment(name=path.stem, run={})
    with wrong:
        if isinstance(base, str):
            experiment = _experiment(base, of_experiment, plugins)
        elif of_experiment:
            line = of_experiment[0].text
            raise UserError(f"{line}: {path.name} has no experiment; write it in evaluate")
    with wrong, placed(path.name):
        sweep = decode(SweepSpec, tree)
    with wrong:
        _check_written(tree, typed)
    wrong.check()
    if base is None:
        run = merged(RunSpec, {}, sweep.fixed)
        return path.stem, replace(sweep, fixed=typed), replace(experiment, run=run)
    return path.stem, replace(sweep, fixed={**sweep.fixed, **typed}), experiment


def _typed(
    tree: dict[str, Any], overrides: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any], list[Override]]:
    """Return the tree of a sweep file with what is typed of it, the dotted fields of a run that are
    typed in place of what the file fixes, and the overrides of the experiment."""
    tree = {**tree, **{key: _each_grid(tree[key], {}) for key in _AXES if key in tree}}
    typed, varied, of_experiment = dict[str, Any](), dict[str, Any](), list[Override]()
    for override in itertools.chain.from_iterable(map(_parts, map(_parsed, overrides))):
        key, values = override.key, override.value if override.several else [override.value]
        head, _, rest = key.partition(".")
        section, axis = ("sampler_axes", rest) if head == "sampler" else ("axes", key)
        if head in OWN:
            tree = _over(tree, {key: override.value})
        elif head not in (*_OF_RUN, *_OF_EXPERIMENT, *(tree.get("variants") or ())):
            raise UserError(f"{override.text}: unknown key {key!r}{_remedy(override)}")
        elif key == "seed":
            tree["seeds"] = values
        elif override.several or _varies(tree, section, axis):
            tree[section] = _each_grid(tree.get(section) or {}, {axis: values})
            varied[key] = values[0]
        elif head in _OF_EXPERIMENT:
            of_experiment.append(override)
        else:
            typed[key] = override.value
    tree, typed = _absolute_paths(tree), _absolute_paths(typed, ".fixed")
    taken = names_of({**typed, **varied}).keys()
    if isinstance(tree.get("fixed"), Mapping):
        tree["fixed"] = {
            name: value
            for name, value in leaves_of(tree["fixed"]).items()
            if not names_of({name: value}).keys() <= taken
            and not any(name.startswith(f"{other}.") for other in (*typed, *varied))
        }
    return tree, typed, of_experiment


def _parts(override: Override) -> list[Override]:
    """Return an override of several fields of a run as one of each; `fixed` needs no name."""
    key = override.key.removeprefix("fixed.")
    if key.partition(".")[0] not in (*_OF_RUN, "fixed") or override.several:
        return [replace(override, key=key)]
    leaves = leaves_of({key: override.value}).items()
    return [replace(override, key=k.removeprefix("fixed."), value=v) for k, v in leaves]


def _varies(tree: Mapping[str, Any], section: str, axis: str) -> bool:
    """Return whether a field is an axis of a sweep file, or the name of its variants."""
    grids = tree.get(section) or {}
    for axes in grids if isinstance(grids, list) else [grids]:
        with contextlib.suppress(KeyError):
            values = value_at(axes, axis.split("."))
            return axis == "route" or not isinstance(values, Mapping)
    return section == "axes" and axis in (tree.get("variants") or ())


def _each_grid(axes: Any, over: Mapping[str, Any]) -> Any:
    """Return a grid of axes, or each of a list of grids, with some axes set; names are nested."""
    if isinstance(axes, list):
        return [_each_grid(one, over) for one in axes]
    return merged(None, merged(None, {}, axes), over) if isinstance(axes, Mapping) else axes


def _check_written(tree: Mapping[str, Any], typed: Mapping[str, Any]) -> None:
    """Refuse fields that no run has and values that they cannot have, unknown variants, a seed
    beside `seeds`, steps that `match` decides, and `spend` without it.

    Raises:
        UserError: every one of them.
    """
    wrong, variants, match = Mistakes(), _section(tree, "variants"), tree.get("match")
    fixed = _section(tree, "fixed")
    written = {"": {**fixed, **typed}, "baseline.": _section(tree, "baseline")}
    for key in ("controls", "trials"):
        written |= {f"{key}[{k}].": part for k, part in enumerate(_section(tree, key))}
    for axis, named in variants.items():
        each = named.items() if isinstance(named, Mapping) else ()
        written |= {f"variants.{axis}.{name}.": part for name, part in each}
    mappings = {place: part for place, part in written.items() if isinstance(part, Mapping)}
    fields = {place: [*leaves_of(part).items()] for place, part in mappings.items()}
    with wrong:
        of_axes = [item for cell in grid(tree.get("axes") or {}, "axes") for item in cell.items()]
        fields["axes."] = [*{repr(item): item for item in of_axes}.values()]
    for place, own in fields.items():
        for name, value in own:
            with wrong, placed(f"{place}{name}"):
                if name == "seed" and (place or tree.get("experiment") is not None):
                    raise UserError("must be in `seeds`, so that baselines have it. Try seeds=[0].")
                if name == SPEND and match is None:
                    raise UserError("requires `match`. Try match: train_flops.")
                if name.endswith(STEPS) and match and place not in ("", "baseline."):
                    raise UserError(
                        f"must follow `match: {match}`. Try the axis {SPEND}: [0.5, 1]."
                    )
                if name in variants and value not in [*variants[name]]:
                    raise UserError(f"no variant {value!r}{suggest(str(value), variants[name])}")
        with wrong:
            check_fields([x for x in own if x[0] not in (SPEND, "seed", *variants)], place)
    wrong.check()


def _section(tree: Mapping[str, Any], key: str) -> Any:
    """Return what a sweep file says of one of its keys; the default where that is wrong."""
    default = fields_of(SweepSpec)[key].default
    with contextlib.suppress(UserError):
        return decode_field(SweepSpec, key, tree.get(key, default))
    return default


def _remedy(override: Override) -> str:
    """Return `. Try search.trials=20` for a key of another tool or with a typing error."""
    head, value = override.key.partition(".")[0], override.text.partition("=")[2]
    if head in _ELSEWHERE:
        return f". Try {_ELSEWHERE[head]}."
    known = (*all_fields(SweepSpec), *_OF_RUN, *_OF_EXPERIMENT, *all_fields())
    meant = near(override.key, known)
    return f". Try {meant}={value}" if meant else suggest(head, (*OWN, *_OF_RUN, *_OF_EXPERIMENT))


def _single(overrides: Iterable[str], several: str) -> list[Override]:
    """Return overrides of one value each.

    Args:
        several: what takes several values.
    """
    typed = list(map(_parsed, overrides))
    for override in typed:
        if override.several:
            count = len(override.value)
            raise UserError(
                f"{override.key}: must be one value, got {count}. Try {several} {override.text}."
            )
    return typed


def _over(under: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree of a file with another one over it."""
    for key, value in over.items():
        head = key.partition(".")[0]
        cls = SweepSpec if head in (*OWN, *_OF_EXPERIMENT) else RunSpec
        under = merged(cls, under, {key: value})
    return under


def _parsed(override: str) -> Override:
    """Return an override in Hydra's grammar; a scalar is read as in a file, and so is a value that
    the grammar does not know, so that arrows and expressions need no quotes of their own.

    Raises:
        UserError: it is none; names key and remedy.
    """
    key, equals, written = override.partition("=")
    if key.startswith(("+", "~")):
        remedy = override.lstrip("+") if equals else f"{key[1:]}=null"
        raise UserError(f"{override}: must be without {key[0]}. Try {remedy}.")
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
        raise UserError(f"cannot read {path}: {error}") from None
    if not isinstance(tree, dict) or not tree:
        raise UserError(f"{path}: expected `key: value` lines")
    own = {str(key): value for key, value in tree.items()}
    names = own.pop("defaults", [])
    if path in above or not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise UserError(f"{path}: defaults: must be names of other files, got {shown(names)}")
    merged_files: dict[str, Any] = {}
    for name in names if "_self_" in names else [*names, "_self_"]:
        beside = path.with_name(f"{name}.yaml")
        file = beside if beside.is_file() else shipped_folder("experiments") / beside.name
        part = own if name == "_self_" else _tree(file, (*above, path))
        merged_files = _over(merged_files, part)
    return merged_files
