"""Compared with the vectors of AWS's Signature Version 4 test suite."""

from datetime import UTC, datetime

from judges.cross_encoder.services.aws_signature import AwsCredentials, signed_headers

EXAMPLE = AwsCredentials(access_key_id="AKIDEXAMPLE", secret_access_key="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
NOW = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)


def sign(method: str, path: str = "/", body: bytes = b"", **headers: str) -> dict[str, str]:
    return signed_headers(
        EXAMPLE,
        method=method,
        url=f"https://example.amazonaws.com{path}",
        body=body,
        region="us-east-1",
        service="service",
        now=NOW,
        headers=headers,
    )


def test_plain_requests_of_the_test_suite() -> None:
    assert sign("GET")["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        "SignedHeaders=host;x-amz-date, Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    )
    assert sign("POST")["Authorization"].endswith("5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b")


def test_signature_covers_body_path_and_headers() -> None:
    signatures = {
        sign("POST")["Authorization"],
        sign("POST", body=b"{}")["Authorization"],
        sign("POST", path="/a%3Ab")["Authorization"],
        sign("POST", path="/a%253Ab")["Authorization"],
        sign("POST", **{"content-type": "application/json"})["Authorization"],
    }
    assert len(signatures) == 5


def test_representation_contains_no_secrets() -> None:
    assert "wJalr" not in repr(EXAMPLE)
