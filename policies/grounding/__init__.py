"""The category ``grounding``, which checks that the reply says what its sources say."""
