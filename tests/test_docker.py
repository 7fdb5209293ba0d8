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


def test_the_image_has_a_c_compiler_for_triton_wget_for_probes_nvml_and_a_user_with_a_number() -> (
    None
):
    lines = (ROOT / "docker/Dockerfile").read_text().replace("\\\n", " ").splitlines()
    installs = [line.split() for line in lines if "apt-get install" in line]
    assert any({"gcc", "libc6-dev", "wget"} <= set(words) for words in installs)
    assert any("pip install" in line and ".[gpu,latents]" in line for line in lines)  # NVML
    assert "USER 1000" in lines and any("useradd --uid 1000 " in line for line in lines)


def test_the_job_runs_a_command_that_parses_on_the_ray_that_is_pinned() -> None:
    job, service, mlflow = yaml.safe_load_all((ROOT / "docker/rayjob.yaml").read_text())
    program, *arguments = job["spec"]["entrypoint"].split()
    assert program == "tread-lab" and parse(arguments).command == "sweep"
    cluster = job["spec"]["rayClusterSpec"]
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert f"ray=={cluster['rayVersion']}" in pins  # the operator refuses a token without it
    (workers,) = cluster["workerGroupSpecs"]
    assert cluster["enableInTreeAutoscaling"] and workers["minReplicas"] >= 1
    assert workers["replicas"] < workers["maxReplicas"]  # else there is nothing to scale
    pods = [
        part["template"]["spec"] for part in (cluster["headGroupSpec"], workers, mlflow["spec"])
    ]
    assert [pod["securityContext"]["fsGroup"] for pod in pods] == [1000] * 3
    (variable,) = (v for v in pods[1]["containers"][0]["env"] if v["name"] == "MLFLOW_TRACKING_URI")
    port = service["spec"]["ports"][0]["port"]
    assert variable["value"] == f"http://{service['metadata']['name']}:{port}"
    assert service["spec"]["selector"] == mlflow["spec"]["template"]["metadata"]["labels"]


def test_every_published_port_is_on_loopback() -> None:
    services = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)
    assert Path(services["mlflow"]["build"]["context"]) == Path("..")
