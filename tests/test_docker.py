"""The files of `docker/`: schemas, linters, KubeRay's rules, and the commands that they run."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.readme_tree import ROOT
from tread_lab.cli.main import parse

DOCKER = ROOT / "docker"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
OBJECTS = [
    tree
    for name in ("claim.yaml", "rayjob.yaml")
    for tree in yaml.safe_load_all((DOCKER / name).read_text())
]
CLAIM, JOB, SERVICE, MLFLOW = OBJECTS
LINES = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ").splitlines()


def lint(program: str, *arguments: str | Path) -> str:
    """What a linter says of a file; the test is skipped where it is not installed."""
    if (path := shutil.which(program)) is None:
        pytest.skip(f"no {program} here")
    done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=120)
    return f"{done.stdout}{done.stderr}" if done.returncode else ""


@pytest.mark.task(64)
def test_the_image_copies_what_is_here_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [word for line in LINES if line.startswith("COPY") for word in line.split()[1:-1]]
    assert copied and all((ROOT / name).exists() for name in copied)
    assert ignored[0] == "*" and sorted(copied) == sorted(w[1:] for w in ignored if w[0] == "!")


def test_hadolint_finds_nothing_that_is_not_explained() -> None:
    for line, after in itertools.pairwise(LINES):
        assert not after.startswith("# hadolint ignore") or line.startswith("# ")
    assert lint("hadolint", DOCKER / "Dockerfile") == ""


@pytest.mark.task(64)
def test_compose_follows_its_schema() -> None:
    schema = ("--builtin-schema", "vendor.compose-spec")
    assert lint("check-jsonschema", *schema, DOCKER / "compose.yaml") == ""


def test_compose_publishes_on_loopback_alone() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 3 and all(port.startswith("127.0.0.1:") for port in ports)


def test_every_secret_of_compose_comes_from_the_environment_and_has_no_default() -> None:
    text = (DOCKER / "compose.yaml").read_text()
    named = set(re.findall(r"\$\{(\w+)", text)) - {"TORCH_INDEX"}
    assert named == set(re.findall(r"\$\{(\w+):\?set it in docker/\.env\}", text))
    example = [
        line for line in (DOCKER / "env.example").read_text().splitlines() if "#" not in line
    ]
    assert sorted(example) == sorted(f"{name}=" for name in named)
    secret = re.compile(r"(?i)\w*(?:password|secret|token|access_key)\w*: (?!\"?\$\{|token$)")
    assert not [line for line in text.splitlines() if secret.search(line)]
    assert "docker/.env" in (ROOT / ".gitignore").read_text().splitlines()


def test_the_job_runs_a_command_that_parses_and_finds_its_volume_and_mlflow() -> None:
    program, *arguments = JOB["spec"]["entrypoint"].split()
    assert program == "tread-lab" and parse(arguments).command == "sweep"
    cluster = JOB["spec"]["rayClusterSpec"]
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert f"ray=={cluster['rayVersion']}" in pins
    (workers,) = cluster["workerGroupSpecs"]
    assert cluster["enableInTreeAutoscaling"] and workers["minReplicas"] >= 1
    assert workers["replicas"] < workers["maxReplicas"]  # else there is nothing to scale
    pods = [
        part["template"]["spec"] for part in (cluster["headGroupSpec"], workers, MLFLOW["spec"])
    ]
    claims = [pod["volumes"][0]["persistentVolumeClaim"]["claimName"] for pod in pods]
    assert claims == [CLAIM["metadata"]["name"]] * 3
    assert [pod["securityContext"]["fsGroup"] for pod in pods] == [1000] * 3
    (variable,) = (v for v in pods[1]["containers"][0]["env"] if v["name"] == "MLFLOW_TRACKING_URI")
    port = SERVICE["spec"]["ports"][0]["port"]
    assert variable["value"] == f"http://{SERVICE['metadata']['name']}:{port}"
    assert SERVICE["spec"]["selector"] == MLFLOW["spec"]["template"]["metadata"]["labels"]


Tree = Any


def strict(schema: Tree) -> Tree:
    """A schema of Kubernetes for JSON Schema: other fields than the named ones are faults."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: strict(part) for key, part in schema.items()}
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    return schema


SCHEMA = Path(os.environ.get("KUBERAY", ROOT / "tests/kuberay_rayjob.yaml"))


def test_the_job_follows_the_schema_of_kuberay() -> None:
    """KUBERAY may name the whole `ray.io_rayjobs.yaml`, which has the pods, too."""
    from jsonschema import Draft202012Validator

    versions = yaml.load(SCHEMA.read_text(), yaml.CSafeLoader)["spec"]["versions"]
    (schema,) = (v["schema"]["openAPIV3Schema"] for v in versions if v["name"] == "v1")
    validator = Draft202012Validator(strict(schema | {"type": "object"}))
    tree = {key: part for key, part in JOB.items() if key != "metadata"}
    assert [error.message for error in validator.iter_errors(tree)] == []
    assert not validator.is_valid({**tree, "spec": {**tree["spec"], "tries": 1}})


def test_every_object_and_pod_follows_the_schema_of_kubernetes() -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    cluster = JOB["spec"]["rayClusterSpec"]
    groups = (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}}
    pods = [{**pod, "spec": group["template"]["spec"]} for group in groups]
    for tree in (CLAIM, SERVICE, MLFLOW, *pods):
        validate(tree, "1.33", strict=True)
        with pytest.raises(Exception, match="unexpected"):
            validate({**tree, "spec": {**tree["spec"], "unknown": 1}}, "1.33", strict=True)
