import pytest

from judges.llm.providers import PROVIDERS, UnknownLlmError, resolve


@pytest.mark.parametrize(
    ("model", "endpoint", "name"),
    [
        ("gpt-4o-mini", "openai", "gpt-4o-mini"),
        ("o3-mini", "openai", "o3-mini"),
        ("claude-haiku-4-5", "anthropic", "claude-haiku-4-5"),
        ("llama-3.1-8b-instant", "groq", "llama-3.1-8b-instant"),
        ("mixtral-8x7b-32768", "groq", "mixtral-8x7b-32768"),
        ("groq/meta-llama/llama-4-scout", "groq", "meta-llama/llama-4-scout"),
    ],
)
def test_model_is_assigned_to_its_provider(model: str, endpoint: str, name: str) -> None:
    found, named = resolve(model, PROVIDERS)
    assert (found.name, named) == (endpoint, name)


@pytest.mark.parametrize("model", ["mystery-7b", "nowhere/gpt", "", "/x", "openai/", "old-gpt-4"])
def test_unknown_model_has_no_provider(model: str) -> None:
    with pytest.raises(UnknownLlmError):
        resolve(model, PROVIDERS)
