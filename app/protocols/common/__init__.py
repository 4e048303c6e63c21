"""Code shared by the client APIs: stream events, SSE, log-probabilities, document prompts."""
