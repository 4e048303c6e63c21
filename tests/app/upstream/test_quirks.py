"""Fields that well-known servers add to OpenAI's, as they send them: without a policy all of them reach the client,
and under a policy those that the operator keeps; usage is recorded wherever it is."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.support.gateways.in_process_gateway import TRUE, Bench, bench, frames, policy, text_of

pytestmark = pytest.mark.anyio

MODES = ("pass", "hold", "live", "final")
KEPT = "x_groq, timings, provider, choices.native_finish_reason, usage.is_byok"
WORDS = ["Permanent staff ", "receive 25 days ", "of annual leave."]
assert "".join(WORDS) == TRUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """``frames`` are what it streams. ``kept`` names the fields that the client must find, and on how many chunks.

    ``usage``: the reported prompt and completion tokens, if any.
    """

    name: str
    frames: Sequence[Mapping[str, Any] | str]
    kept: Mapping[str, int]
    usage: tuple[int, int] | None = None
    done: bool = True

    def body(self) -> bytes:
        lines = [f if isinstance(f, str) else f"data: {json.dumps(f)}\n\n" for f in self.frames]
        return "".join([*lines, "data: [DONE]\n\n" if self.done else ""]).encode()


def chunk(choices: Sequence[Mapping[str, Any]], **fields: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-7",
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "vendor-1",
        "choices": list(choices),
        **fields,
    }


def choice(finish: str | None = None, /, **delta: Any) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def counts(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        **more,
    }


FILTERS = {name: {"filtered": False, "severity": "safe"} for name in ("hate", "self_harm", "sexual", "violence")}

AZURE = Provider(
    name="azure",
    frames=[
        {
            "choices": [],
            "created": 0,
            "id": "",
            "model": "",
            "object": "",
            "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": FILTERS}],
        },
        chunk([{**choice(role="assistant", content="", refusal=None), "content_filter_results": {}}]),
        *(chunk([{**choice(content=word), "content_filter_results": FILTERS}]) for word in WORDS),
        chunk([{**choice("stop"), "content_filter_results": {}}]),
        chunk([], usage=counts(21, 9, completion_tokens_details={"reasoning_tokens": 0})),
    ],
    kept={"prompt_filter_results": 1},
    usage=(21, 9),
)

GROQ = Provider(
    name="groq",
    frames=[
        chunk([choice(role="assistant", content="")], x_groq={"id": "req_01", "seed": 7}),
        *(chunk([choice(content=word)]) for word in WORDS),
        chunk([choice("stop")], x_groq={"id": "req_01", "usage": counts(21, 9, queue_time=0.02, total_time=0.1)}),
    ],
    kept={"x_groq": 2},
    usage=(21, 9),
)

OLLAMA = Provider(
    name="ollama",
    frames=[
        *(chunk([choice(role="assistant", content=word)], system_fingerprint="fp_ollama") for word in WORDS),
        chunk([choice("stop", role="assistant", content="")], system_fingerprint="fp_ollama"),
        chunk([], system_fingerprint="fp_ollama", usage=counts(21, 9)),
    ],
    kept={},
    usage=(21, 9),
)

VLLM = Provider(
    name="vllm with continuous usage",
    frames=[
        chunk([choice(role="assistant", content="")], usage=counts(21, 0)),
        *(chunk([choice(content=word)], usage=counts(21, 3 * n)) for n, word in enumerate(WORDS, start=1)),
        chunk([{**choice("stop", content=""), "stop_reason": None}], usage=counts(21, 9)),
        chunk([], usage=counts(21, 9)),
    ],
    kept={},
    usage=(21, 9),
)

LLAMA_CPP = Provider(
    name="llama.cpp",
    frames=[
        chunk([choice(role="assistant", content=None)], system_fingerprint="b4500"),
        *(chunk([choice(content=word)], system_fingerprint="b4500") for word in WORDS),
        chunk([choice("stop")], system_fingerprint="b4500"),
        chunk(
            [],
            system_fingerprint="b4500",
            usage=counts(21, 9),
            timings={"prompt_n": 21, "prompt_ms": 30.5, "predicted_n": 9, "predicted_ms": 120.25},
        ),
    ],
    kept={"timings": 1},
    usage=(21, 9),
)

LLAMA_CPP_WITHOUT_USAGE = Provider(
    name="llama.cpp, timings on the finish",
    frames=[
        chunk([choice(role="assistant", content=None)]),
        *(chunk([choice(content=word)]) for word in WORDS),
        chunk([choice("stop")], timings={"prompt_n": 21, "predicted_n": 9}),
    ],
    kept={"timings": 1},
)

OPENROUTER = Provider(
    name="openrouter",
    frames=[
        ": OPENROUTER PROCESSING\n\n",
        ": OPENROUTER PROCESSING\n\n",
        *(
            chunk([{**choice(role="assistant", content=word), "native_finish_reason": None}], provider="Vendor")
            for word in WORDS
        ),
        chunk(
            [{**choice("stop", role="assistant", content=""), "native_finish_reason": "end_turn"}], provider="Vendor"
        ),
        chunk(
            [{**choice(role="assistant", content=""), "native_finish_reason": None}],
            provider="Vendor",
            usage=counts(21, 9, cost=0.00014, is_byok=False),
        ),
    ],
    kept={},
    usage=(21, 9),
)

GEMINI = Provider(
    name="gemini",
    frames=[
        chunk([{"index": 0, "delta": {"role": "assistant", "content": WORDS[0]}}], usage=counts(21, 3)),
        chunk([{"index": 0, "delta": {"role": "assistant", "content": WORDS[1]}}], usage=counts(21, 6)),
        chunk(
            [{"index": 0, "delta": {"role": "assistant", "content": WORDS[2]}, "finish_reason": "stop"}],
            usage=counts(21, 9),
        ),
    ],
    kept={},
    usage=(21, 9),
)

DEEPSEEK = Provider(
    name="deepseek, usage on the finish",
    frames=[
        ": keep-alive\n\n",
        chunk([choice(role="assistant", content="")]),
        *(chunk([choice(content=word)]) for word in WORDS),
        chunk([choice("stop", content="")], usage=counts(21, 9, prompt_cache_hit_tokens=0)),
    ],
    kept={"usage": 1},
    usage=(21, 9),
)

BARE = Provider(
    name="no usage at all",
    frames=[
        chunk([choice(role="assistant", content="")]),
        *(chunk([choice(content=word)]) for word in WORDS),
        chunk([choice("stop")]),
    ],
    kept={},
)

PROVIDERS = [AZURE, GROQ, OLLAMA, VLLM, LLAMA_CPP, LLAMA_CPP_WITHOUT_USAGE, OPENROUTER, GEMINI, DEEPSEEK, BARE]


async def run(provider: Provider, mode: str, keep_fields: str | None = KEPT) -> tuple[bytes, Bench]:
    policies = [] if mode == "pass" else [policy(min_citations=0, stream_mode=mode)]
    at = await bench(provider.body(), *policies, settings={"keep_fields": keep_fields})
    given = {"documents": None} if mode == "pass" else {}
    return await at.stream_bytes(stream_options={"include_usage": True}, **given), at


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
async def test_kept_provider_fields_reach_the_client_in_order(provider: Provider, mode: str) -> None:
    got, _ = await run(provider, mode)
    if mode == "pass":
        assert got == provider.body()
        return
    stream = frames(got)
    chunks = [frame for frame in stream if isinstance(frame, dict)]
    assert text_of(stream) == TRUE
    assert stream[-1] == "[DONE]"
    for name, times in provider.kept.items():
        assert sum(name in frame for frame in chunks) == times, name
    assert not [frame for frame in stream if isinstance(frame, str) and frame.startswith(":")]
    for name in ("prompt_filter_results", "x_groq", "timings"):
        assert [frame[name] for frame in chunks if name in frame] == [
            frame[name] for frame in provider.frames if isinstance(frame, dict) and name in frame
        ]


@pytest.mark.parametrize("mode", MODES[1:])
async def test_provider_fields_are_left_out_under_a_policy(mode: str) -> None:
    for provider, names in ((LLAMA_CPP, ("timings",)), (OPENROUTER, ("provider", "native_finish_reason", "is_byok"))):
        got, _ = await run(provider, mode, keep_fields=None)
        assert text_of(frames(got)) == TRUE
        assert not [name for name in names if name in got.decode()]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
async def test_usage_is_recorded_in_any_position(provider: Provider, mode: str) -> None:
    _, at = await run(provider, mode)
    row = at.event.request
    assert (row.status, row.finish_reason, row.usage_estimated) == ("completed", "stop", provider.usage is None)
    if provider.usage is not None:
        assert (row.prompt_tokens, row.completion_tokens) == provider.usage


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
async def test_final_usage_is_sent_once_after_all_text(provider: Provider, mode: str) -> None:
    got, _ = await run(provider, mode)
    chunks = [frame for frame in frames(got) if isinstance(frame, dict)]
    sent = [frame["usage"] for frame in provider.frames if isinstance(frame, dict) and frame.get("usage")]
    if not sent:
        return
    assert [frame["usage"] for frame in chunks if frame.get("usage")][-1] == sent[-1]
    last_text = max(n for n, frame in enumerate(chunks) if text_of([frame]))
    last_usage = max(n for n, frame in enumerate(chunks) if frame.get("usage"))
    assert last_usage >= last_text


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
async def test_finish_is_sent_once_with_the_summary(provider: Provider, mode: str) -> None:
    got, _ = await run(provider, mode)
    ends = [
        frame
        for frame in frames(got)
        if isinstance(frame, dict) and any(choice.get("finish_reason") for choice in frame["choices"])
    ]
    assert len(ends) == 1
    assert ends[0]["grounding"]["verdict"] == "supported"


@pytest.mark.parametrize("provider", [VLLM, GEMINI], ids=lambda provider: provider.name)
async def test_blocked_reply_ends_with_the_usage_so_far(provider: Provider) -> None:
    text = json.dumps(list(provider.frames)).replace("25", "40")
    at = await bench(
        replace(provider, frames=json.loads(text)).body(),
        policy(min_citations=0, contradiction_action="block", stream_mode="hold"),
    )
    stream = await at.stream(stream_options={"include_usage": True})
    assert stream[-1] == "[DONE]"
    last = stream[-2]
    assert isinstance(last, dict)
    assert (last["choices"], last["usage"]["prompt_tokens"]) == ([], 21)
    assert at.event.request.status == "blocked"
    assert (at.event.request.prompt_tokens, at.event.request.usage_estimated) == (21, False)


async def test_azure_filter_results_stay_with_their_choices() -> None:
    got, _ = await run(AZURE, "hold")
    texts = [frame for frame in frames(got) if isinstance(frame, dict) and text_of([frame])]
    assert all(frame["choices"][0]["content_filter_results"] == FILTERS for frame in texts)


async def test_openrouter_native_reason_stays_on_the_finish() -> None:
    got, _ = await run(OPENROUTER, "hold")
    reasons = [
        choice["native_finish_reason"]
        for frame in frames(got)
        if isinstance(frame, dict)
        for choice in frame["choices"]
        if choice.get("finish_reason")
    ]
    assert reasons == ["end_turn"]
