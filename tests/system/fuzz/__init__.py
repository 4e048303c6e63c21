"""Coverage-guided fuzzing of what reads bytes from elsewhere. Each target is a module with a ``check``; ``__main__``
drives them with atheris, and ``test_targets.py`` without."""
