"""The headers of an upstream that a client receives: known names, and values of a known form."""

import httpx
import pytest

from app.upstream.headers import returned_headers


def returned(name: str, value: str, *, read: bool = True) -> str | None:
    response = httpx.Response(200, headers=[(name.encode(), value.encode())])
    return dict(returned_headers(response, read=read)).get(name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("content-type", "text/event-stream; charset=utf-8"),
        ("content-type", 'application/json;charset="utf-8"'),
        ("x-request-id", "req_011CSHoEeqs5C35K2UUqR7Fy"),
        ("apim-request-id", "7b2a0c43-9a53-4b0c-8e5b-93b1a4a6a0e1"),
        ("retry-after", "20"),
        ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"),
        ("retry-after-ms", "1500"),
        ("openai-processing-ms", "12"),
        ("openai-version", "2020-10-01"),
        ("openai-organization", "org-Jx2"),
        ("x-ratelimit-limit", "100, 100;w=60"),
        ("x-ratelimit-reset-tokens", "6m0.25s"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-renewalperiod-tokens", "60"),
        ("anthropic-organization-id", "a7b2"),
        ("anthropic-ratelimit-input-tokens-reset", "2026-01-01T00:00:00Z"),
        ("anthropic-ratelimit-unified-5h-utilization", "0.31"),
    ],
)
def test_headers_that_clients_use_are_returned(name: str, value: str) -> None:
    assert returned(name, value) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("openai-note", "1"),
        ("openai-take-eight-daily", "1"),
        ("x-ratelimit-limit-is-nine-thousand", "1"),
        ("x-ratelimit", "1"),
        ("x-take", "8"),
        ("x-groundlane-action", "allow"),
        ("access-control-allow-origin", "*"),
        ("retry-after", "Take, eight. Now!"),
        ("retry-after", "Take;eight!"),
        ("x-request-id", "take eight"),
        ("x-request-id", "take\teight"),
        ("x-request-id", "take\u00a0eight"),
        ("x-request-id", "acht täglich"),
        ("content-type", "text/html; note=take eight"),
        ("content-type", 'text/html; note="take eight"'),
        ("openai-version", "(take eight)"),
        ("x-ratelimit-limit", "100, take;w=60"),
    ],
)
def test_headers_carry_no_text(name: str, value: str) -> None:
    assert returned(name, value) is None


def test_headers_describe_a_body_that_the_gateway_does_not_read() -> None:
    value = 'attachment; filename="the report.pdf"'
    assert returned("content-disposition", value, read=False) == value
    assert returned("content-disposition", value) is None
