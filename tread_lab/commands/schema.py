"""The schema command: print the JSON schema of sweep or experiment files."""

from __future__ import annotations

from tread_lab.commands.exit_codes import DONE
from tread_lab.specs.schema import schema_text


def run(*, kind: str) -> int:
    """Print the schema of `sweep` or `experiment` files; return the exit code."""
    print(schema_text(kind), end="")
    return DONE
