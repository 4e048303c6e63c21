"""The example of a request, as a shell reads it."""

import json
import shlex

import pytest
from fastapi import Request

from app.dashboard.curl_example import curl_example


@pytest.fixture
def request_of_a_page() -> Request:
    headers = [(b"host", b"gateway.example:8443")]
    scope = {"type": "http", "scheme": "https", "path": "/dashboard/keys", "headers": headers, "query_string": b""}
    return Request(scope)


def test_example_has_the_key_the_agent_and_a_document(request_of_a_page: Request) -> None:
    command = curl_example(request_of_a_page, key="gl-secret", agent="it's $(mine)")
    words = shlex.split(command.replace("\\\n", ""))  # shlex does not join lines
    assert words[:2] == ["curl", "https://gateway.example:8443/v1/chat/completions"]
    options = list(zip(words[2::2], words[3::2], strict=True))
    headers = {value for option, value in options if option == "-H"}
    assert headers >= {"Authorization: Bearer gl-secret", "X-Groundlane-Agent: it's $(mine)"}
    (body,) = [json.loads(value) for option, value in options if option == "-d"]
    assert body.keys() == {"model", "messages", "documents"}
    assert body["documents"][0].keys() == {"id", "text"}


def test_example_without_a_key_reads_it_from_the_shell(request_of_a_page: Request) -> None:
    assert '-H "Authorization: Bearer $GROUNDLANE_KEY"' in curl_example(request_of_a_page)
