"""Gateway keys: who may call the gateway, how often, and for which models and collections."""

from app.auth.gateway_key import GatewayKey, hash_key, is_key, new_key, prefix_of
from app.auth.key_store import KeyDraft, KeyStore, StoredKey
from app.auth.rate_limit import Allowance, RateLimiter, TokenBuckets
from app.auth.redis_rate_limit import SharedBuckets, check_redis, open_limiter

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
