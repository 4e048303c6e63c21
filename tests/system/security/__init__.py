"""What the threat model in ``docs/operations/security.md`` claims, held to it."""
