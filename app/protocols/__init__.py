"""The client APIs. Each API has a request reader, a decoder, an encoder and an allowlist. This package makes no policy
decisions."""
