"""Edge cases of the data that crosses the gateway's boundaries."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.config import UpstreamSpec
from app.errors import UnknownModelError
from app.settings import UpstreamApi
from app.upstream.provider import url_of
from judges import embedded
from judges.cross_encoder.cached_evidence import CachedEvidenceScorer
from judges.protocols import JudgeUnavailableError
from tests.support.gateways.live_gateway import ADMIN_TOKEN, Gateway
from tests.support.gateways.mock_upstream import Reply, json_reply


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path_factory.mktemp("boundaries")).start()
    yield gateway
    gateway.close()


def test_target_with_another_host_goes_to_the_upstream(gateway: Gateway) -> None:
    gateway.upstream.script(json_reply({}))
    for path, status in (
        ("http://169.254.169.254/v1/models", 200),
        ("/v1/models@169.254.169.254", 403),
        ("/v1/models?url=http://169.254.169.254", 200),
    ):
        with gateway.call(path=path, method="GET") as call:
            call.read_all()
        assert call.status == status
    hosts = {exchange.header("host") for exchange in gateway.upstream.exchanges}
    assert hosts == {f"127.0.0.1:{gateway.upstream.port}"}


@pytest.mark.parametrize("header", ["authorization", "x-api-key", "api-key", "x-goog-api-key"])
@pytest.mark.parametrize("scheme", ["", "Bearer ", "bearer  ", "Basic x "])
def test_admin_token_never_reaches_the_upstream(gateway: Gateway, header: str, scheme: str) -> None:
    gateway.upstream.script(json_reply({}), json_reply({}))
    for method, path in (("GET", "/v1/models"), ("POST", "/v1/chat/completions")):
        messages = [{"role": "user", "content": "Hi"}]
        body = {"model": "m", "messages": messages} if method == "POST" else None
        with gateway.call(body, path=path, method=method, headers={header: f"{scheme}{ADMIN_TOKEN}"}) as call:
            call.read_all()
        assert call.status == 200
    sent = [value for exchange in gateway.upstream.exchanges for _, value in exchange.headers]
    assert len(gateway.upstream.exchanges) == 2
    assert not any(ADMIN_TOKEN in value for value in sent)


def test_redirects_are_left_to_the_client(gateway: Gateway) -> None:
    gateway.upstream.script(
        Reply(status=302, headers={"location": "http://169.254.169.254/", "content-length": "0"}, chunked=False)
    )
    with gateway.call(path="/v1/models", method="GET") as call:
        call.read_all()
        assert call.status == 302
    assert len(gateway.upstream.exchanges) == 1


@pytest.mark.parametrize("model", [".", ".."])
def test_model_name_cannot_change_the_path(model: str) -> None:
    spec = UpstreamSpec(name="a", base_url="https://a.test/openai", api=UpstreamApi.AZURE)
    with pytest.raises(UnknownModelError):
        url_of(spec, "/chat/completions", "", model)
    assert "/deployments/..%2Fa%3Fb%23/chat" in url_of(spec, "/chat/completions", "", "../a?b#")


def test_upstream_page_cannot_act_as_a_gateway_page(gateway: Gateway) -> None:
    page = b"<script>fetch('/dashboard/')</script>"
    headers = {
        "content-type": "text/html",
        "content-security-policy": "default-src *",
        "content-length": str(len(page)),
    }
    gateway.upstream.script(Reply(headers=headers, chunks=[page], chunked=False))
    for path, method, body in (
        ("/v1/files/f/content", "GET", None),
        ("/v1/chat/completions", "POST", b'{"messages": [{}]}'),
    ):
        with gateway.call(body, path=path, method=method) as call:
            call.read_all()
            assert call.response.headers.get_all("content-security-policy") == [
                "sandbox; default-src 'none'; frame-ancestors 'none'"
            ]
            assert call.response.headers["x-content-type-options"] == "nosniff"


def test_upstream_headers_are_forwarded_unchanged(gateway: Gateway) -> None:
    gateway.upstream.script(json_reply({}, headers={"openai-organization": "✓ café".encode().decode("latin-1")}))
    with gateway.call(path="/v1/models", method="GET") as call:
        call.read_all()
        assert call.status == 200
        assert call.response.headers["openai-organization"].encode("latin-1").decode() == "✓ café"


@pytest.mark.parametrize(("path", "status"), [("/docs", 200), ("/redoc", 308), ("/docs/oauth2-redirect", 404)])
def test_pages_load_no_scripts_from_other_hosts(gateway: Gateway, path: str, status: int) -> None:
    with gateway.call(path=path, method="GET") as call:
        body = call.read_all()
        assert call.status == status
        assert b"<script" not in body
        assert b'src="http' not in body
        assert call.header("location") in (None, "/docs")


def test_admin_body_without_a_length_is_limited(gateway: Gateway) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * 100_000

    response = gateway.admin.post("/policies", content=endless(), headers={"content-type": "application/json"})
    assert response.status_code == 413
    assert ADMIN_TOKEN not in response.text


@pytest.mark.anyio
@pytest.mark.parametrize("spoil", ["sums", "line", "weights"])
async def test_model_with_wrong_checksums_is_not_loaded(tmp_path: Path, spoil: str) -> None:
    folder = Path(shutil.copytree(embedded.FOLDER, tmp_path / "model"))
    sums = folder / "SHA256SUMS"
    if spoil == "sums":
        sums.unlink()
    elif spoil == "line":
        sums.write_text("".join(line for line in sums.read_text().splitlines(True) if "weights.bin" not in line))
    else:
        with (folder / "weights.bin").open("r+b") as stream:
            stream.write(b"\0\0\0\0")
    scorer = CachedEvidenceScorer(folder, threads=1)
    with pytest.raises(JudgeUnavailableError, match=r"SHA256SUMS|SHA-256"):
        await scorer.start()
    await scorer.aclose()
