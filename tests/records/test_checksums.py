"""Claims about sealed text: any change of any byte is noticed, and files of before are read."""

from __future__ import annotations

import contextlib
import json

import pytest
import yaml

from tread_lab.records.checksums import Damaged, json_text, json_tree, yaml_body, yaml_text

TREE = {"state": "completed", "step": 24, "metrics": {"a/b": 0.1 + 0.2, "crc": "no"}, "list": [1]}


def test_what_is_written_is_read() -> None:
    for tree in (TREE, {}, [1, {"crc": "x"}], "text", None):
        assert json_tree(json_text(tree)) == tree
    body = yaml.safe_dump(TREE)
    assert yaml_body(yaml_text(body)) == body and yaml.safe_load(yaml_text(body)) == TREE


def test_other_programs_read_it_too() -> None:
    assert {k: v for k, v in json.loads(json_text(TREE)).items() if k != "crc"} == TREE


@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_every_changed_bit_and_every_cut_is_noticed(kind: str) -> None:
    body = yaml.safe_dump(TREE)
    text = json_text(TREE) if kind == "json" else yaml_text(body)
    changed = [text[:n] + chr(ord(text[n]) ^ 1) + text[n + 1 :] for n in range(len(text))]
    for damaged in [*changed, *(text[:n] for n in range(8, len(text)))]:
        with contextlib.suppress(Damaged):
            if kind == "json":  # only the checksum's own key was hit
                assert {key: json_tree(damaged).get(key) for key in TREE} == TREE
            else:  # only the mark of the checksum was hit
                assert yaml_body(damaged).endswith(body)


def test_files_without_a_checksum_are_read_as_they_are() -> None:
    assert json_tree(json.dumps(TREE)) == TREE
    assert yaml_body("a: 1\n") == "a: 1\n"
