"""Runs the notebooks on a lab, all in one kernel, and stores them with what they show."""

from __future__ import annotations

import argparse
import copy
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tread_lab.records.durable import write_text
from tread_lab.specs.errors import UserError

NOTEBOOKS = Path(__file__).parent
RESET = "%reset -f"
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


@dataclass(frozen=True)
class Executed:
    """A notebook with its outputs, and why it could not be run (empty if it could)."""

    path: Path
    notebook: Any
    problem: str = ""


def execute(paths: Sequence[Path], root: Path | None = None) -> list[Executed]:
    """Run notebooks one after the other in one kernel that is emptied between them.

    A notebook whose sweep is missing, or of which a cell failed, has a problem.

    Raises:
        UserError: Jupyter's parts are not installed.
    """
    try:
        import nbformat
        from nbclient import NotebookClient
    except ImportError:
        raise UserError("notebooks need nbclient and ipykernel; pip install -e '.[dev]'") from None
    loaded = [nbformat.read(path, as_version=4) for path in paths]
    whole = nbformat.v4.new_notebook(metadata=KERNEL)
    parts = []
    for number, notebook in enumerate(loaded):
        cells = [nbformat.v4.new_code_cell(RESET), *copy.deepcopy(notebook.cells)]
        for cell in cells:
            cell.id = f"n{number}-{len(whole.cells)}"
            whole.cells.append(cell)
        parts.append(cells[1:])
    client = NotebookClient(whole, timeout=300, kernel_name="python3", allow_errors=True)
    client.extra_arguments = ["--log-level=ERROR"]
    lab = {} if root is None else {"TREAD_LAB_ROOT": str(root.absolute())}
    client.execute(env=os.environ | lab)
    return [_executed(*each) for each in zip(paths, loaded, parts)]


def store(done: Executed) -> None:
    """Write a notebook back with its outputs; nothing in it changes but what it shows."""
    import nbformat

    write_text(done.path, nbformat.writes(done.notebook) + "\n")


def _executed(path: Path, notebook: Any, cells: Sequence[Any]) -> Executed:
    """Return the notebook with the outputs of its cells, numbered as if it had run alone."""
    problem, count = "", 0
    for own, ran in zip(notebook.cells, cells):
        if own.cell_type != "code":
            continue
        count += 1
        own.execution_count, own.outputs = count, [_plain(out, count) for out in ran.outputs]
        own.metadata = {}
        failed = next((out for out in ran.outputs if out.output_type == "error"), None)
        if failed is None:
            continue
        where = "" if failed.ename == "UserError" else f"cell {count}: {failed.ename}: "
        problem = f"{where}{failed.evalue}"
        break
    notebook.metadata = KERNEL
    return Executed(path, notebook, problem)


def _plain(output: Any, count: int) -> Any:
    """Return an output as it is stored: a picture or table without the name of its class."""
    if "execution_count" in output:
        output.execution_count = count
    data = output.get("data", {})
    if len(data) > 1:
        data.pop("text/plain", None)
    return output


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the notebooks named, else all, and store them; 1 if one of them could not be run."""
    parser = argparse.ArgumentParser(
        prog="python -m tread_lab.analysis.notebooks.execute", description=main.__doc__
    )
    parser.add_argument("names", metavar="NOTEBOOK", nargs="*", help="default: all")
    parser.add_argument("--root", type=Path, help="the lab (TREAD_LAB_ROOT, else the nearest lab)")
    options = parser.parse_args(arguments)
    paths = [NOTEBOOKS / f"{Path(name).stem}.ipynb" for name in options.names]
    try:
        found = execute(paths or sorted(NOTEBOOKS.glob("*.ipynb")), options.root)
    except UserError as error:
        print(f"tread_lab.analysis.notebooks.execute: {error}", file=sys.stderr)
        return 2
    for done in found:
        if not done.problem:
            store(done)
        print(f"{done.path.stem}: {done.problem or 'stored'}")
    return int(any(done.problem for done in found))


if __name__ == "__main__":
    sys.exit(main())
