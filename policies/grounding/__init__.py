"""The category ``grounding``, which checks that the sources support the reply."""
