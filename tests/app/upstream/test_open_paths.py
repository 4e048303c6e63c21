"""Ungoverned paths: open, listed, or rejected, in any spelling."""

import pytest

from app.errors import InvalidRequestError, MethodNotAllowedError, UngovernedPathError
from app.upstream import OpenPaths
from app.upstream.open_paths import GOVERNED

CLOSED = [
    "/batches",
    "/batches/batch_1/cancel",
    "/threads/t/runs",
    "/assistants",
    "/realtime/sessions",
    "/engines/gpt-4o/completions",
    "/deployments/gpt-4o/chat/completions",
    "/openai/deployments/gpt-4o/chat/completions",
    "/responses/compact",
    "/responses/resp_1",
    "/responses/resp_1/input_items",
    "/chat/completions/chatcmpl-1/messages",
    "/messages/batches",
    "/containers",
    "/",
    "/filesystem",
    "/Files",
    "/files%2Fa",
    "/files;v=1",
    "/%66iles",
    "/models@host",
    "/audio/chat/completions",
    "/images/responses",
    "/embeddings/chat/completions",
    "/rerank/messages",
]
EVASIONS = [
    "/files/../chat/completions",
    "/files/%2e%2e/chat/completions",
    "/files/%252e%252e/batches",
    "/files/%25252e%25252e/batches",
    "/files/..%2fbatches",
    "/files/..%2F..%2Fv1/batches",
    "/files/..;/batches",
    "/files/..;x=1/batches",
    "/files/.%2e%3b/batches",
    "/files/%20..%20/batches",
    "/files/..\\batches",
    "/files/..%5cbatches",
    "/files//batches",
    "//batches",
    "/./batches",
    "/files%00",
    "/files/a%0d%0ahost:x",
    "/files/a%3fb",
    "/batches%23",
    "/%" + "25" * 20_000 + "41",
]


@pytest.mark.parametrize(
    "path",
    ["/models", "/models/", "/models/org%2Fname", "/embeddings", "/moderations", "/rerank", "/files/f-1/content",
     "/uploads/u/parts", "/images/generations", "/audio/speech", "/vector_stores/vs/search"],
)  # fmt: skip
def test_paths_without_generated_replies_are_open(path: str) -> None:
    OpenPaths().check("GET", path)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("path", CLOSED)
def test_other_paths_are_closed_and_the_error_names_the_setting(method: str, path: str) -> None:
    with pytest.raises(UngovernedPathError, match="GROUNDLANE_PASSTHROUGH") as refused:
        OpenPaths().check(method, path)
    assert (refused.value.status, refused.value.code) == (403, "UNGOVERNED_PATH")


@pytest.mark.parametrize("listed", [None, "*", "files*", "v1/*"])
@pytest.mark.parametrize("path", EVASIONS)
def test_no_path_is_mistaken_for_another(path: str, listed: str | None) -> None:
    with pytest.raises(InvalidRequestError):
        OpenPaths(listed).check("POST", path)


@pytest.mark.parametrize("governed", sorted(GOVERNED))
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_listed_path_never_leads_to_a_governed_one(method: str, governed: str) -> None:
    first = governed[0]
    for path in (
        f"/{governed}",
        f"/{governed}/",
        f"/{governed.upper()}",
        f"/{governed};x=1",
        f"/{governed}%20",
        f"/v1/{governed}",
        f"/V1/v1/{governed}",
        f"/%{ord(first):x}{governed[1:]}",
        f"/%25{ord(first):x}{governed[1:]}",
        f"/{chr(ord(first) + 0xFEE0)}{governed[1:]}",
        f"/{governed.replace('s', 'ſ')}",
    ):
        with pytest.raises(InvalidRequestError, match=f"/v1/{governed}"):
            OpenPaths("*").check(method, path)


def test_models_are_read_only() -> None:
    for method in ("GET", "HEAD", "DELETE"):
        OpenPaths().check(method, "/models/m")
    with pytest.raises(UngovernedPathError):
        OpenPaths().check("POST", "/models/m:generateContent")


@pytest.mark.parametrize(
    ("listed", "path", "open"),
    [
        ("batches", "/batches", True),
        ("batches", "/batches/b/cancel", True),
        ("batches", "/batches2", False),
        ("batches", "/Batches", False),
        (" /v1/batches/ , threads/* ", "/batches/b", True),
        (" /v1/batches/ , threads/* ", "/threads/t", True),
        (" /v1/batches/ , threads/* ", "/threads", False),
        ("engines/*/embeddings", "/engines/m/embeddings", True),
        ("engines/*/embeddings", "/engines/m/completions", False),
        ("responses/*", "/responses/resp_1", True),
        (",", "/batches", False),
        ("*", "/batches", True),
        ("*", "/no/such/path", True),
    ],
)
def test_paths_listed_by_the_operator_are_open(listed: str, path: str, open: bool) -> None:
    paths = OpenPaths(listed)
    assert paths.everything is (listed == "*")
    if open:
        paths.check("POST", path)
    else:
        with pytest.raises(UngovernedPathError):
            paths.check("POST", path)


def test_stored_replies_are_readable_only_if_listed() -> None:
    with pytest.raises(MethodNotAllowedError):
        OpenPaths().check("GET", "/chat/completions")
    OpenPaths("chat/completions").check("GET", "/chat/completions")
