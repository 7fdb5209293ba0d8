"""Runs the notebooks on the lab, all in one kernel, and stores them with what they show."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tread_lab.config.errors import UserError
from tread_lab.records.durable import write_text

NOTEBOOKS = Path(__file__).parent
SETTINGS = {"kernel_name": "python3", "timeout": 300, "record_timing": False}


def execute(paths: Sequence[Path]) -> Iterator[tuple[Path, str, str]]:
    """Run notebooks in one kernel that is emptied between them; give each as its file is then.

    The last text says why one could not be run, for example that its sweep is missing.

    Raises:
        UserError: Jupyter's parts are not installed.
    """
    try:
        import nbformat
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError
    except ImportError:
        raise UserError("notebooks need nbclient and ipykernel; pip install -e '.[dev]'") from None
    quiet = ["--log-level=ERROR"]
    client = NotebookClient(nbformat.v4.new_notebook(), extra_arguments=quiet, **SETTINGS)
    with client.setup_kernel():
        for path in paths:
            notebook = client.nb = nbformat.read(path, as_version=4)
            client.kc.execute("get_ipython().reset()", silent=True)
            problem = ""
            try:
                for index, cell in enumerate(notebook.cells):
                    client.execute_cell(cell, index)
                    for output in cell.get("outputs", ()):
                        if len(output.get("data", ())) > 1:  # a picture or table needs no text
                            del output.data["text/plain"]
            except CellExecutionError as error:
                name = "" if error.ename == "UserError" else f"{error.ename}: "
                problem = name + error.evalue
            yield path, nbformat.writes(notebook) + "\n", problem


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the notebooks named, else all, and store them; 1 if one of them could not be run."""
    parser = argparse.ArgumentParser(
        prog="python -m tread_lab.analysis.notebooks.execute", description=main.__doc__
    )
    parser.add_argument("names", metavar="NOTEBOOK", nargs="*", help="default: all")
    names, problems = parser.parse_args(arguments).names, []
    paths = [NOTEBOOKS / f"{Path(name).stem}.ipynb" for name in names]
    try:
        for path, text, problem in execute(paths or sorted(NOTEBOOKS.glob("*.ipynb"))):
            if not problem:
                write_text(path, text)
            print(f"{path.stem}: {problem or 'stored'}")
            problems.append(problem)
    except UserError as error:
        print(f"tread_lab.analysis.notebooks.execute: {error}", file=sys.stderr)
        return 2
    return int(any(problems))


if __name__ == "__main__":
    sys.exit(main())
