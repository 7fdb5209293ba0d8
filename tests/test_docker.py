"""What can be said of the images without an engine: files parse, commands and paths exist."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.readme_tree import ROOT
from tread_lab.cli import parse


def test_everything_the_image_copies_is_here() -> None:
    lines = (ROOT / "docker/Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert copied and all((ROOT / name).exists() for name in copied)


def test_the_image_has_the_c_compiler_that_triton_needs() -> None:
    text = (ROOT / "docker/Dockerfile").read_text().replace("\\\n", " ")
    installs = [line.split() for line in text.splitlines() if "apt-get install" in line]
    assert any({"gcc", "libc6-dev"} <= set(words) for words in installs)


def test_the_job_runs_a_command_that_parses() -> None:
    job = yaml.safe_load((ROOT / "docker/rayjob.yaml").read_text())
    program, *arguments = job["spec"]["entrypoint"].split()
    assert program == "tread-lab" and parse(arguments).command == "sweep"


def test_every_published_port_is_on_loopback() -> None:
    services = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)
    assert Path(services["mlflow"]["build"]["context"]) == Path("..")
