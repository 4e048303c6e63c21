"""Policy files in TOML and JSON, with errors that name the key."""

import pytest

from app.cli.apply_policies import PolicyFileError, policy_file, read_policies
from app.policy_admin.policy_document import parse_document

TOML = """
[[upstreams]]
name = "a"
base_url = "http://127.0.0.1"

[[policies]]
name = "gate"
category = "retrieval"
rules = { min_chunks = 2 }
"""
GATE = parse_document({"name": "gate", "category": "retrieval", "rules": {"min_chunks": 2}})


@pytest.mark.parametrize(
    ("text", "json"),
    [
        (TOML, False),
        ('[{"name": "gate", "category": "retrieval", "rules": {"min_chunks": 2}}]', True),
        ('{"policies": [{"name": "gate", "category": "retrieval", "rules": {"min_chunks": 2}}]}', True),
    ],
)
def test_policies_are_read_from_toml_and_json(text: str, json: bool) -> None:
    assert list(read_policies(text, json=json)) == [GATE]


def test_written_file_can_be_read_again() -> None:
    drafts = [GATE, parse_document({"name": "b", "category": "grounding", "scope": {"keys": ["ci-*"]}})]
    assert list(read_policies(policy_file(drafts), json=True)) == drafts


@pytest.mark.parametrize(
    ("text", "json", "said"),
    [
        ("[[policies]", False, "not TOML: "),
        ("{", True, "not JSON: "),
        ("{}", True, "policies: missing"),
        ("7", True, "policies: expected a list"),
        ('{"policies": {}}', True, "policies: expected a list"),
        ('{"policy": []}', True, "policy: unknown key"),
        ("[7]", True, "policies[0]."),
        ('[{"category": "retrieval"}]', True, "policies[0].name: Field required"),
        (TOML + "colour = 1", False, "policies[0].colour: "),
        (TOML.replace("= 2", "= -2"), False, "policies[0].rules.min_chunks: "),
        (TOML + TOML[TOML.index("[[policies") :], False, "policies[1].name: duplicate name 'gate'"),
    ],
)
def test_errors_are_one_line_that_names_the_key(text: str, json: bool, said: str) -> None:
    with pytest.raises(PolicyFileError) as caught:
        read_policies(text, json=json)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
