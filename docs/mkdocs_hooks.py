"""MkDocs hooks: they add pages from outside this folder, convert links that leave it, and check that the site loads
nothing from other hosts."""

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "judges/embedded/CARD.md": "card.md",
    "judges/embedded/large/CARD.md": "card-large.md",
}
"""The page of the site for each file in the repository."""

_HOME = {page: file for file, page in ELSEWHERE.items()}
_LINK = re.compile(r"(?P<fence>^(?P<ticks>```+)[\s\S]*?^(?P=ticks)$)|\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)", re.M)
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video)\b[^>]*\bsrc(?:set)?=["']?(?:https?:)?//[^"'> ]+"""
    r"""|<link\b(?![^>]*rel=["']?canonical)[^>]*\bhref=["']?(?:https?:)?//[^"'> ]+"""
)
_BOOSTS = {"operations/": 2, "adr/": 0.1, "changelog.md": 0.1}
"""How the search ranks pages: operations first; decision records and the changelog last."""
_log = logging.getLogger("mkdocs.hooks.links")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Convert the repository's links to links of the site. Links to source files become plain text."""
    here = page.file.src_uri
    boost = next((boost for start, boost in _BOOSTS.items() if here.startswith(start)), 1)
    page.meta.setdefault("search", {"boost": boost})
    folder = posixpath.dirname(_HOME.get(here, f"docs/{here}"))

    def moved(match: re.Match[str]) -> str:
        target = match["target"]
        if target is None or "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        path, hash, anchor = target.partition("#")
        file = posixpath.normpath(posixpath.join(folder, path))
        if file not in ELSEWHERE and not file.startswith("docs/"):
            return match["text"] if "`" in match["text"] else f"{match['text']} (`{file}`)"
        goal = ELSEWHERE.get(file, file.removeprefix("docs/"))
        return f"[{match['text']}]({posixpath.relpath(goal, posixpath.dirname(here) or '.')}{hash}{anchor})"

    return _LINK.sub(moved, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Warn about each page that loads something from another host. In a strict build, this is an error."""
    for page in sorted(Path(config.site_dir).rglob("*.html")):
        for found in _LOADED.findall(page.read_text("utf-8")):
            _log.warning("%s loads from another host: %s", page.name, found)
