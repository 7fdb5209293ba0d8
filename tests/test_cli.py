"""The command line answers at once, and every command shows an example that parses."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import subprocess
import sys
from importlib import import_module

import pytest

from tread_lab.cli import EXAMPLES, _parser, main, parse

HEAVY = ("torch", "ray", "mlflow", "hydra", "omegaconf", "pandas", "numpy", "rich", "matplotlib")


def subcommands() -> dict[str, argparse.ArgumentParser]:
    actions = _parser()._actions
    (kinds,) = [a for a in actions if isinstance(a, argparse._SubParsersAction)]
    return dict(kinds.choices)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom tread_lab.cli import main\n"
        "try: main(['sweep', '--help'])\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", subcommands())
def test_every_command_has_an_example_and_options_that_its_module_takes(name: str) -> None:
    epilog = subcommands()[name].epilog
    assert epilog is not None and epilog.startswith("example: tread-lab ")
    options = vars(parse(shlex.split(epilog.removeprefix("example: tread-lab "))))
    command = import_module(f"tread_lab.commands.{options.pop('command')}")
    assert command.__name__ == f"tread_lab.commands.{name}" and callable(command.run)
    assert {field.name for field in dataclasses.fields(command.Options)} == set(options)


def test_the_examples_of_the_first_page_parse() -> None:
    lines = [line.strip() for line in EXAMPLES.splitlines() if line.startswith("  tread-lab")]
    assert len(lines) > 5
    for line in lines:
        parse(shlex.split(line.split("   ")[0].removeprefix("tread-lab ")))


def test_overrides_may_stand_anywhere() -> None:
    options = parse(["sweep", "x.yaml", "a=1", "--plan", "b=2", "--name", "n", "c=3"])
    assert options.overrides == ["a=1", "b=2", "c=3"] and options.plan and options.name == "n"


def test_a_pipe_that_breaks_inside_a_command_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(options: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr("tread_lab.commands.status.run", broken)
    with pytest.raises(BrokenPipeError):
        main(["status"])


def test_a_reader_that_leaves_early_is_no_failure() -> None:
    code = "from tread_lab import cli; cli.run()"
    arguments = [sys.executable, "-c", code, "schema", "sweep"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (0, b"")
