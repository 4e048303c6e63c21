"""The client APIs: each has a request reader, a decoder, an encoder and an allowlist. This package makes no
decisions."""
