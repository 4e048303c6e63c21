"""The legacy completions API of OpenAI."""
