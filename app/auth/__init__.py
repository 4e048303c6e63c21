"""Authentication and rate limits. Gateway keys control which models and collections a client may use, and how often."""

from app.auth.gateway_key import GatewayKey, hash_key, is_key, is_model_field, new_key, prefix_of
from app.auth.key_store import KeyDraft, KeyStore, StoredKey
from app.auth.rate_limiter import Allowance, InMemoryRateLimiter, RateLimiter
from app.auth.redis_rate_limiter import RedisRateLimiter, check_redis, open_rate_limiter

__all__ = [
    "Allowance",
    "GatewayKey",
    "InMemoryRateLimiter",
    "KeyDraft",
    "KeyStore",
    "RateLimiter",
    "RedisRateLimiter",
    "StoredKey",
    "check_redis",
    "hash_key",
    "is_key",
    "is_model_field",
    "new_key",
    "open_rate_limiter",
    "prefix_of",
]
