"""The installed gateway. Makes the packages ``app``, ``policies``, ``judges`` and ``migrations`` importable.

In a wheel, these four packages are inside this folder, so that nothing is installed under names that other projects
use. In a clone of the repository, they are next to this folder. A program that runs the gateway must call
``activate()`` before it imports any of them.
"""

import sys
from pathlib import Path

PACKAGES = ("app", "policies", "judges", "migrations")

_HERE = Path(__file__).resolve().parent
ROOT = str(_HERE if (_HERE / "app").is_dir() else _HERE.parent)
"""The folder that contains the packages."""


def activate() -> None:
    """Put ``ROOT`` first on ``sys.path``, for this process and the processes that it spawns.

    Raises ImportError if a different package with one of these names is already imported.
    """
    for name in PACKAGES:
        path = getattr(sys.modules.get(name), "__path__", None)
        if name in sys.modules and not any(Path(entry).resolve().parent == Path(ROOT) for entry in path or ()):
            raise ImportError(
                f"the gateway needs a separate process, because a different package named {name!r} is already imported"
            )
    if sys.path[:1] != [ROOT]:
        sys.path.insert(0, ROOT)
