"""Documents in the formats of retrieval libraries and APIs, and the fields read from them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.errors import InvalidRequestError
from app.protocols.documents import Limits
from app.protocols.documents.document_extraction import Documents
from judges.types import Chunk


def read(document: Any) -> Chunk:
    documents = Documents(Limits())
    documents.take_all([document], "documents")
    (chunk,) = documents.chunks
    return chunk


def refused(document: Any) -> str | None:
    with pytest.raises(InvalidRequestError) as caught:
        read(document)
    assert caught.value.message.startswith(str(caught.value.param))
    return caught.value.param


def days_ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days, hours=1)


class TestCohere:
    def test_string_is_a_text(self) -> None:
        assert read("Emperor penguins are the tallest.").text == "Emperor penguins are the tallest."
        assert refused(" ") == "documents[0]"

    def test_title_and_snippet(self) -> None:
        chunk = read(
            {"id": "doc_0", "title": "Tall penguins", "snippet": "Emperors are the tallest.", "url": "https://x.y"}
        )
        assert (chunk.id, chunk.title, chunk.text, chunk.url) == (
            "doc_0", "Tall penguins", "Emperors are the tallest.", "https://x.y",
        )  # fmt: skip

    def test_data_with_known_keys(self) -> None:
        chunk = read({"id": "1", "data": {"title": "Tall penguins", "snippet": "Emperors are the tallest."}})
        assert (chunk.id, chunk.title, chunk.text) == ("1", "Tall penguins", "Emperors are the tallest.")

    def test_data_with_any_keys_is_a_line_for_each(self) -> None:
        data = {"id": "r7", "employee": "Ada", "days": 25, "tags": ["x"], "secret": "s", "_excludes": ["secret"]}
        assert read({"id": "1", "data": data}).text == "employee: Ada\ndays: 25"

    def test_data_as_a_string(self) -> None:
        assert read({"data": "Emperors are the tallest.", "id": "1"}).text == "Emperors are the tallest."

    @pytest.mark.parametrize("document", [{"data": {}}, {"data": {"id": "x"}}, {"data": {"tags": []}}])
    def test_data_without_text_is_refused(self, document: Any) -> None:
        assert refused(document) == "documents[0].data"


class TestChatTemplates:
    def test_title_and_text(self) -> None:
        chunk = read({"title": "Leave", "text": "Staff get 25 days."})
        assert (chunk.title, chunk.text) == ("Leave", "Staff get 25 days.")


LANGCHAIN = {
    "id": None,
    "metadata": {"source": "manuals/leave.pdf", "page": 3, "relevance_score": 0.83, "title": "Leave"},
    "page_content": "Staff get 25 days.",
    "type": "Document",
}


class TestLangChain:
    def test_dumped_document(self) -> None:
        chunk = read(LANGCHAIN)
        assert (chunk.text, chunk.source, chunk.relevance_score) == ("Staff get 25 days.", "manuals/leave.pdf", 0.83)
        assert (chunk.id, chunk.title, chunk.metadata["page"]) == ("doc-1", "Leave", 3)

    def test_serialised_form(self) -> None:
        class_path = ["langchain", "schema", "document", "Document"]
        chunk = read({"lc": 1, "type": "constructor", "id": class_path, "kwargs": {**LANGCHAIN, "id": "d7"}})
        assert (chunk.id, chunk.source, chunk.relevance_score) == ("d7", "manuals/leave.pdf", 0.83)

    def test_its_errors_name_the_place(self) -> None:
        serialised = {"lc": 1, "type": "constructor", "id": [], "kwargs": {**LANGCHAIN, "metadata": {"score": 12.5}}}
        assert refused(serialised) == "documents[0].kwargs.metadata.score"

    def test_document_beside_its_score(self) -> None:
        chunk = read({"document": LANGCHAIN, "score": 0.5})
        assert (chunk.text, chunk.relevance_score) == ("Staff get 25 days.", 0.5)

    def test_web_page_as_source_is_its_url(self) -> None:
        chunk = read({"page_content": "x", "metadata": {"source": "https://example.com/a"}})
        assert chunk.url == chunk.source == "https://example.com/a"


LLAMA_INDEX = {
    "node": {
        "id_": "0f7c",
        "embedding": None,
        "metadata": {"file_name": "leave.pdf", "file_path": "/data/leave.pdf", "page_label": "3"},
        "excluded_embed_metadata_keys": ["file_name"],
        "excluded_llm_metadata_keys": [],
        "relationships": {"1": {"node_id": "9a1b", "node_type": "4", "metadata": {}, "hash": "aa"}},
        "metadata_template": "{key}: {value}",
        "metadata_separator": "\n",
        "text": "Staff get 25 days.",
        "mimetype": "text/plain",
        "start_char_idx": 0,
        "end_char_idx": 18,
        "text_template": "{metadata_str}\n\n{content}",
        "class_name": "TextNode",
    },
    "score": 0.8123,
    "class_name": "NodeWithScore",
}


class TestLlamaIndex:
    def test_node_with_score(self) -> None:
        chunk = read(LLAMA_INDEX)
        assert (chunk.id, chunk.text, chunk.source) == ("0f7c", "Staff get 25 days.", "leave.pdf")
        assert (chunk.relevance_score, chunk.metadata["page_label"]) == (0.8123, "3")

    def test_node_whose_text_is_a_resource(self) -> None:
        node = {"id_": "n", "text_resource": {"text": "Staff get 25 days.", "mimetype": None}, "class_name": "Document"}
        assert read({"node": node, "score": None}).text == "Staff get 25 days."

    def test_age_of_a_file(self) -> None:
        node = {"text": "x", "metadata": {"last_modified_date": days_ago(20).date().isoformat()}}
        assert read({"node": node, "score": 0.5}).age_days in (20, 21)

    def test_its_errors_name_the_place(self) -> None:
        assert refused({"node": {"text": " "}, "score": 0.5}) == "documents[0].node.text"
        assert refused({"node": {"text": "x", "metadata": []}}) == "documents[0].node.metadata"


class TestHaystack:
    def test_nested_meta(self) -> None:
        chunk = read(
            {"id": "h1", "content": "Staff get 25 days.", "blob": None, "meta": {"file_path": "leave.pdf"},
             "score": 0.9, "embedding": None, "sparse_embedding": None}
        )  # fmt: skip
        assert (chunk.id, chunk.text, chunk.source, chunk.relevance_score) == (
            "h1", "Staff get 25 days.", "leave.pdf", 0.9,
        )  # fmt: skip

    def test_flattened_meta(self) -> None:
        assert read({"id": "h1", "content": "x", "file_path": "leave.pdf", "score": 0.9}).source == "leave.pdf"


def test_search_result_of_openais_vector_stores() -> None:
    chunk = read(
        {"file_id": "file-1", "filename": "leave.pdf", "score": 0.7, "attributes": {"collection": "hr"},
         "content": [{"type": "text", "text": "Staff get"}, {"type": "text", "text": "25 days."}]}
    )  # fmt: skip
    assert (chunk.text, chunk.source, chunk.collection) == ("Staff get\n25 days.", "leave.pdf", "hr")


class TestFields:
    @pytest.mark.parametrize("name", ["text", "content", "snippet", "page_content", "chunk", "data"])
    def test_names_of_the_text(self, name: str) -> None:
        assert read({name: "x"}).text == "x"
        assert refused({name: 5}) == f"documents[0].{name}"
        assert refused({name: "\n"}) == f"documents[0].{name}"

    @pytest.mark.parametrize("name", ["relevance_score", "score", "similarity", "relevance"])
    @pytest.mark.parametrize("metadata", ["metadata", "meta", "attributes"])
    def test_names_of_the_score(self, name: str, metadata: str) -> None:
        assert read({"text": "x", name: 0.25}).relevance_score == 0.25
        assert read({"text": "x", metadata: {name: 1}}).relevance_score == 1.0
        for beyond in (1.01, -0.01, 37, "0.5", True, 10**400):
            assert refused({"text": "x", name: beyond}) == f"documents[0].{name}"
            assert refused({"text": "x", metadata: {name: beyond}}) == f"documents[0].{metadata}.{name}"

    @pytest.mark.parametrize("name", ["source", "filename", "file_id", "file_name", "file_path"])
    def test_names_of_the_source(self, name: str) -> None:
        assert read({"text": "x", name: "s"}).source == "s"
        assert read({"text": "x", "metadata": {name: "s"}}).source == "s"
        assert refused({"text": "x", name: ["s"]}) == f"documents[0].{name}"

    @pytest.mark.parametrize("name", ["id", "id_", "node_id", "doc_id", "document_id"])
    def test_names_of_the_id(self, name: str) -> None:
        assert read({"text": "x", name: 7}).id == "7"
        assert read({"text": "x", name: ""}).id == "doc-1"
        assert refused({"text": "x", name: 1.5}) == f"documents[0].{name}"

    def test_metadata_counts_only_where_the_document_does_not_say(self) -> None:
        metadata = {
            "source": "m",
            "score": 0.1,
            "title": "M",
            "collection": "mc",
            "age_days": 9,
            "id": "mi",
            "text": "mt",
        }
        own = {"text": "x", "source": "s", "score": 0.9, "title": "T", "collection": "c", "created_at": "2020-01-01"}
        chunk = read({**own, "metadata": metadata})
        assert (chunk.text, chunk.source, chunk.relevance_score) == ("x", "s", 0.9)
        assert (chunk.title, chunk.collection, chunk.id) == ("T", "c", "doc-1")
        assert chunk.age_days is not None
        assert chunk.age_days > 2000
        inner = read({"metadata": metadata, "source": "", "title": None})
        assert (inner.text, inner.source, inner.title, inner.age_days) == ("mt", "m", "M", 9)

    def test_list_of_parts_is_joined(self) -> None:
        parts = [{"type": "text", "text": "a"}, "b", {"type": "image_url", "image_url": {}}]
        assert read({"content": parts}).text == "a\nb"
        assert refused({"content": [{"type": "text", "text": 5}]}) == "documents[0].content[0].text"
        assert refused({"content": ["a", 5]}) == "documents[0].content[1]"
        assert refused({"content": []}) == "documents[0].content"


DATES = ["updated_at", "published_at", "created_at", "last_modified_date", "creation_date"]


class TestAge:
    @pytest.mark.parametrize("name", DATES)
    @pytest.mark.parametrize("form", ["iso", "z", "lower", "epoch", "fraction"])
    def test_dates_are_read_in_every_format(self, name: str, form: str) -> None:
        stamp = days_ago(20)
        value: Any = {
            "iso": stamp.isoformat(),
            "z": stamp.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lower": stamp.strftime("%Y-%m-%d %H:%M:%Sz"),
            "epoch": int(stamp.timestamp()),
            "fraction": stamp.timestamp(),
        }[form]
        assert read({"text": "x", name: value}).age_days == 20
        assert read({"text": "x", "metadata": {name: value}}).age_days == 20

    def test_date_without_an_offset_is_utc(self) -> None:
        stamp = days_ago(20)
        assert read({"text": "x", "updated_at": stamp.strftime("%Y-%m-%dT%H:%M:%S")}).age_days == 20
        tokyo = (stamp + timedelta(hours=9)).strftime("%Y-%m-%dT%H:%M:%S+09:00")
        assert read({"text": "x", "updated_at": tokyo}).age_days == 20

    def test_first_given_date_counts(self) -> None:
        dates = {name: days_ago(10 + position).isoformat() for position, name in enumerate(DATES)}
        assert read({"text": "x", **dates}).age_days == 10
        assert read({"text": "x", **dates, "age_days": 3}).age_days == 3

    @pytest.mark.parametrize(
        "value",
        ["yesterday", "20260101", "2026-W01-1", "2026-13-01", "2026-01-01T25:00:00Z", "", 5, 0, -1, 99_999_999,
         1_700_000_000_000, 1e300, 10**400, True, [], {}, "0001-01-01T00:00:00+23:59", "2999-01-01"],
        ids=str,
    )  # fmt: skip
    def test_invalid_dates_are_named(self, value: Any) -> None:
        assert refused({"text": "x", "created_at": value}) == "documents[0].created_at"
        assert refused({"text": "x", "metadata": {"created_at": value}}) == "documents[0].metadata.created_at"

    def test_slightly_future_date_is_accepted(self) -> None:
        ahead = (datetime.now(UTC) + timedelta(hours=3)).isoformat()
        assert read({"text": "x", "updated_at": ahead}).age_days == 0


class TestLimits:
    def test_number_of_documents(self) -> None:
        documents = Documents(Limits(documents=2))
        documents.take("a", "messages[0].content[0]")
        with pytest.raises(InvalidRequestError, match="3 documents exceed the limit of 2") as caught:
            documents.take_all(["b", "c"])
        assert caught.value.param == "documents"
        documents.take("b", "x")
        with pytest.raises(InvalidRequestError, match="3 documents exceed the limit of 2"):
            documents.take("c", "y")

    @pytest.mark.parametrize(("document", "param"), [("x" * 11, "d"), ({"content": "x" * 11}, "d.content")])
    def test_text_of_one(self, document: Any, param: str) -> None:
        documents = Documents(Limits(document_chars=10))
        documents.take("x" * 10, "d")
        with pytest.raises(InvalidRequestError, match="11 characters exceed the limit of 10") as caught:
            documents.take(document, "d")
        assert (caught.value.param, caught.value.status) == (param, 400)

    def test_text_of_all(self) -> None:
        documents = Documents(Limits(total_chars=10))
        documents.take("x" * 6, "a")
        with pytest.raises(InvalidRequestError, match="exceed the total limit of 10 characters") as caught:
            documents.take({"text": "x" * 5}, "b")
        assert caught.value.param == "b.text"
        assert len(documents.chunks) == 1
