"""What the client APIs share: stream events, SSE, log-probabilities, document prompts."""
