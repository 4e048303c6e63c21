"""Coverage-guided fuzzing of the code that reads external bytes. Each target is a module with a ``check``; ``__main__``
drives them with atheris, and ``test_targets.py`` without."""
