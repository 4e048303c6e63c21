"""What the threat model in ``docs/security.md`` claims, held to it."""
