"""YAML as every file and override here is read and written: the scalars of YAML 1.2, no tags."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from tread_lab.config.errors import UserError, first_line

_TAG = "tag:yaml.org,2002:"
# The core schema of YAML 1.2 (section 10.3.2), and `<<`, which merges a mapping into another.
_CORE = {
    "null": r"null|Null|NULL|~|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    "merge": r"<<",
}
_SCALARS = [(f"{_TAG}{name}", re.compile(f"(?:{text})$")) for name, text in _CORE.items()]

if TYPE_CHECKING:
    _Fast = yaml.SafeLoader
else:
    _Fast = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C, where libyaml was there


class _Loader(_Fast):
    yaml_implicit_resolvers = {None: _SCALARS}  # noqa: RUF012 (as PyYAML declares it)

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping whose keys all differ."""
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        seen = set[str]()
        for key in (key for key, _ in pairs if isinstance(key, yaml.ScalarNode)):
            if key.value in seen and key.tag != f"{_TAG}merge":
                problem = f"found duplicate key {key.value!r}"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)  # type: ignore[arg-type]


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


_Loader.yaml_constructors = {
    f"{_TAG}null": _Loader.construct_yaml_null,
    f"{_TAG}bool": _Loader.construct_yaml_bool,
    f"{_TAG}int": _integer,
    f"{_TAG}float": _Loader.construct_yaml_float,
    f"{_TAG}str": _Loader.construct_scalar,
    f"{_TAG}seq": lambda loader, node: loader.construct_sequence(node, deep=True),
    f"{_TAG}map": lambda loader, node: loader.construct_mapping(node, deep=True),
    None: _Loader.construct_undefined,
}


class Dumper(yaml.SafeDumper):
    """Dumper that quotes texts which the loader would not read as texts."""

    yaml_implicit_resolvers = {None: _SCALARS}  # noqa: RUF012


def load_yaml(text: str, name: str) -> Any:
    """Return the plain tree of a YAML document.

    `010` is 10, `0o10` is 8, `1e-4` is a number; `no`, `on`, `1:30` and `1_000` are texts.

    Args:
        name: of the file, as an error names it.

    Raises:
        UserError: invalid YAML, an unknown tag or a duplicate key; names the line.
    """
    try:
        return _Loader(text).get_single_data()
    except (yaml.YAMLError, KeyError, RecursionError, ValueError) as error:
        opened = "flow" in (getattr(error, "context", None) or "")
        mark = getattr(error, "context_mark" if opened else "problem_mark", None)
        place = f" line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or first_line(error)
        problem = problem.removeprefix("found ")
        problem = "a bracket that is not closed. Try closing it" if opened else problem
        raise UserError(f"{name}{place}: must be valid YAML, got {problem}") from None


def dump_yaml(tree: Any) -> str:
    """Return the YAML document of a plain tree, keys in their order."""
    text: str = yaml.dump(tree, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    return text
