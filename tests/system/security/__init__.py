"""Tests of the claims in the threat model in ``docs/operations/security.md``."""
