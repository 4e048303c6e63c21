"""Judges that score one pair of texts per request: cloud checks, and generative models behind an OpenAI-compatible
server."""
