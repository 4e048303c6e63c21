"""Gateway keys: who may call the gateway, how often, and for which models and collections."""

from app.keys.key import GatewayKey, hash_key, is_key, new_key, prefix_of
from app.keys.limits import Allowance, RateLimiter, TokenBuckets
from app.keys.shared_limits import SharedBuckets, check_redis, open_limiter
from app.keys.store import KeyDraft, KeyStore, StoredKey

__all__ = [
    "Allowance",
    "GatewayKey",
    "KeyDraft",
    "KeyStore",
    "RateLimiter",
    "SharedBuckets",
    "StoredKey",
    "TokenBuckets",
    "check_redis",
    "hash_key",
    "is_key",
    "new_key",
    "open_limiter",
    "prefix_of",
]
