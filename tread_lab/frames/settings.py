"""What tells evaluations of one kind apart, in the fewest words: `w=1`, `w=1.5 SG(0.5/0.9)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tread_lab.specs.decode import decode, encode
from tread_lab.specs.guidance import GuidanceSpec, in_short
from tread_lab.specs.labels import value_text


def setting_names(specs: Sequence[Any]) -> list[str]:
    """What tells evaluations of one kind apart: `w=1`, `w=1.5 SG(0.5/0.9)`."""
    trees = {str(number): flat(encode(spec)) for number, spec in enumerate(specs)}
    return [name.strip() for name in differences(trees).values()]


def differences(specs: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Signature -> ` key=value ...` of the fields in which these specs differ: ` w=1.5 SG(0/0.5)`.

    How guidance combines its branches speaks for itself and needs no key; where all of it is CFG,
    the weight says enough, and the routes are said only where nothing else differs.
    """
    fields = dict.fromkeys(field for spec in specs.values() for field in spec)
    fields.pop("metrics", None)
    values = {field: {repr(spec.get(field)) for spec in specs.values()} for field in fields}
    plain = {repr(""), repr("CFG")}
    differing = [f for f, found in values.items() if len(found) > 1 and not found <= plain]
    short = _named(specs, [field for field in differing if not field.endswith(".routes")])
    return short if len(set(short.values())) == len(short) else _named(specs, differing)


def _named(specs: dict[str, dict[str, Any]], fields: Sequence[str]) -> dict[str, str]:
    return {
        sig: "".join(_difference(field, spec.get(field)) for field in fields)
        for sig, spec in specs.items()
    }


def _difference(field: str, value: Any) -> str:
    name = field.rpartition(".")[2]
    if name == "method" or value is None:
        return f" {value}" if value else ""
    return f" {name}={value_text(value)}"


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of a spec's tree by dotted name; guidance in its short form."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        value = in_short(decode(GuidanceSpec, value)) if key == "guidance" else value
        found |= (
            flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        )
    return found
