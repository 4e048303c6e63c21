"""The review of claims: people label claims whose verdict is uncertain or disputed."""
