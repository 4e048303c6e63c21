"""Gateway keys: who may call the gateway, how often, and for which models and collections."""

from app.keys.key import GatewayKey, hash_key, is_key, new_key, prefix_of
from app.keys.limits import Allowance, RateLimiter, TokenBuckets
from app.keys.store import KeyDraft, KeyStore, StoredKey

__all__ = [
    "Allowance",
    "GatewayKey",
    "KeyDraft",
    "KeyStore",
    "RateLimiter",
    "StoredKey",
    "TokenBuckets",
    "hash_key",
    "is_key",
    "new_key",
    "prefix_of",
]
