"""The command ``groundlane``."""

from groundlane_server import activate


def main() -> None:
    """Entry point of the console script and of ``python -m groundlane_server``."""
    activate()
    from app.cli.main import main

    main()


if __name__ == "__main__":
    main()
