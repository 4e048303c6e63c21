"""Every code block in the documentation is run, or checked as far as possible."""

from pathlib import Path

import pytest

from tests.system.documentation.blocks import ALL, COMMENTS, PAGES, ROOT, SHELL, Block, Use, read_blocks
from tests.system.documentation.checks import check_data, check_python, check_shell
from tests.system.documentation.matching import same_json, same_text
from tests.system.documentation.running import Reader

_HELP = """{where}: unknown kind of block (```{language}).
tests/system/documentation runs the blocks of a page in order, against a gateway with the demo's model:
  python, sh, bash   run; `localhost:8080` is the gateway, $TOKEN its admin token
  text               compared with the output of the block before it; … matches anything
  json, toml, yaml   parsed by the gateway's own readers
For a block that can't be run here, add a comment on the line before it, which isn't shown on the page:
  <!-- not run: WHY -->   only its syntax, commands, options, extras and settings are checked
  <!-- drawing -->        not code
CONTRIBUTING.md, "Code in the documentation", lists all of them."""


def named(block: Block) -> str:
    return block.where


@pytest.mark.parametrize("block", ALL, ids=named)
def test_use_of_every_block_is_known(block: Block) -> None:
    assert block.comments.keys() <= COMMENTS.keys(), f"{block.where}: unknown comments; known are {list(COMMENTS)}"
    if block.use is None:
        pytest.fail(_HELP.format(where=block.where, language=block.language), pytrace=False)


@pytest.mark.parametrize("block", [b for b in ALL if b.language in SHELL], ids=named)
def test_commands_name_existing_files_and_options(block: Block) -> None:
    check_shell(block)


@pytest.mark.parametrize("block", [b for b in ALL if b.language == "python"], ids=named)
def test_python_blocks_can_be_parsed(block: Block) -> None:
    check_python(block)


@pytest.mark.parametrize("block", [b for b in ALL if b.use is Use.DATA], ids=named)
def test_data_blocks_are_accepted_by_the_gateway(block: Block, tmp_path: Path) -> None:
    check_data(block, tmp_path)


RUN = {Use.RUN, Use.OUTPUT, Use.DATA}
TO_READ = {
    page: [block for block in ALL if block.page == page and block.use in RUN]
    for page in (str(path.relative_to(ROOT)) for path in PAGES)
}


@pytest.mark.parametrize("page", [page for page, blocks in TO_READ.items() if any(b.use is Use.RUN for b in blocks)])
def test_page_works_from_top_to_bottom(page: str, reader: Reader) -> None:
    for block in TO_READ[page]:
        reader.read(block)


# Tests of the helpers


def test_blocks_are_found_with_their_comments() -> None:
    one = "<!-- not run: no Docker -->\n<!-- file: x.sh -->\n```sh\ndocker run\n```\n"
    first, second = read_blocks(f"a\n\n{one}\n- b\n\n  ```json\n  {{}}\n  ```\n", "p.md")
    assert (first.where, first.language, first.code) == ("p.md:5", "sh", "docker run\n")
    assert first.comments == {"not run": "no Docker", "file": "x.sh"}
    assert (second.where, second.language, second.code, second.comments) == ("p.md:11", "json", "{}\n", {})


def test_unclosed_block_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"p\.md:2"):
        read_blocks("a\n```sh\nls\n", "p.md")


@pytest.mark.parametrize("comments", ["", "<!-- not run -->\n", "<!-- replies: whole -->\n"])
def test_block_of_an_unknown_kind_has_no_use(comments: str) -> None:
    (block,) = read_blocks(f"{comments}```nginx\nserver {{}}\n```\n", "p.md")
    assert block.use is None


@pytest.mark.parametrize(
    "code",
    [
        "groundlane serv",
        "groundlane serve --prot 8080",
        "groundlane db drop",
        "make cofee",
        "pip install 'groundlane[postgresql]'",
        "python -m benchmarks.nothing",
        "GROUNDLANE_PORT=1 groundlane serve",
        "if true; then",
    ],
)
def test_missing_commands_are_detected(code: str) -> None:
    (block,) = read_blocks(f"```sh\n{code}\n```\n", "p.md")
    with pytest.raises(AssertionError):
        check_shell(block)


@pytest.mark.parametrize(
    "code",
    [
        '{"name": "a", "category": "grounding", "rules": {"no_such_rule": 1}}',
        '{"messages": [], "documents": [{"text": "a", "relevance_score": 2}]}',
        '{"text": "a", "sources": [1]}',
        '{"what": "nobody knows"}',
        "{",
    ],
)
def test_data_rejected_by_the_gateway_is_detected(code: str, tmp_path: Path) -> None:
    (block,) = read_blocks(f"```json\n{code}\n```\n", "p.md")
    with pytest.raises((Exception, pytest.fail.Exception)):  # any error of a parser
        check_data(block, tmp_path)


def test_output_is_compared_except_for_placeholders() -> None:
    same_text("a … c\n…\nz\n", "a b c\nd\ne\nz\n", "p.md:1")
    same_text("a\n…\nz\n", "a\nz\n", "p.md:1")
    same_json({"id": "req_1", "n": 3, "ms": 1.5, "l": [1, "…"], "…": "…"},
              {"id": "req_ff", "n": 3, "ms": 9.25, "l": [1, 2, 3], "more": None}, "p.md:1")  # fmt: skip


@pytest.mark.parametrize(
    ("shown", "got"),
    [({"n": 3}, {"n": 4}), ({"n": 3}, {"n": 3, "m": 1}), ({"n": 3}, {}), ([1], [1, 2]), (1.5, "a"), ("a…", "b")],
)
def test_different_output_is_detected(shown: object, got: object) -> None:
    with pytest.raises(AssertionError):
        same_json(shown, got, "p.md:1")


@pytest.mark.parametrize("printed", ["a\n", "a\nb\nc\n", "a\nd\n"])
def test_different_text_is_detected(printed: str) -> None:
    with pytest.raises(AssertionError):
        same_text("a\nb\n", printed, "p.md:1")
