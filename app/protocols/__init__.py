"""The client APIs: each has a request reader, a decoder, an encoder and an allowlist. Nothing here makes a decision."""
