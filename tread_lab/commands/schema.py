"""The schema command: print the JSON schema of sweep or experiment files."""

from __future__ import annotations

from dataclasses import dataclass

from tread_lab.commands.exit_codes import DONE
from tread_lab.specs.schema import schema_text


@dataclass(frozen=True)
class Options:
    """The options of `tread-lab schema`; `kind` is `sweep` or `experiment`."""

    root: str | None
    kind: str


def run(options: Options) -> int:
    """Print the schema; return the exit code."""
    print(schema_text(options.kind), end="")
    return DONE
