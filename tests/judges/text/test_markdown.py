import pytest

from judges.text.markdown import cells, plain, plain_code


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("The deductible is **500** francs per _year_. ", "The deductible is 500 francs per year."),
        ("## Parental leave\n\n", "Parental leave"),
        ("- [x] **Done:** `a_b*c` ~~old~~\n", "Done: a_b*c old"),
        ("  12) Item\n", "Item"),
        ("> quoted", "quoted"),
        ("quoted\n    > twice", "quoted > twice"),
        (
            'See [the *rules*](https://a.example/b_(c) "T") and [more][2] ![plan](x.png).',
            "See the rules and more .",
        ),
        ("Five years.[1] Six [2, 3].【4†source】 Seven [^1] [doc 2] [Source: a.pdf]", "Five years. Six. Seven"),
        ("Moreno et al. [2019] said [sic] so<sup>1</sup>.", "Moreno et al. [2019] said [sic] so."),
        ("<https://a.example> <b>bold</b><br/>line &amp; \\*star\\*", "https://a.example bold line & *star*"),
        ("5 * 3, 2*3, snake_case, **重要**です, *one*", "5 * 3, 2*3, snake_case, 重要です, one"),
        (
            "n*o*t, un*safe*, a__b, 価格は**500**円, Mitarbeiter*innen",
            "not, unsafe, a__b, 価格は500円, Mitarbeiterinnen",
        ),
        ("M. Dupont a 3.14", "M. Dupont a 3.14"),
        ("| **Plan** | Price [1] |\n", "Plan, Price"),
        ("|---|:-:|\n", ""),
        ("---\n", ""),
        ("- ", ""),
        ("[1]", ""),
        ("10\u00a0000  euros\n\n", "10 000 euros"),
    ],
)
def test_plain_text_is_what_would_be_read_aloud(text: str, read: str) -> None:
    assert plain(text) == read


def test_code_is_read_without_its_fence() -> None:
    assert plain_code("```sh\nls  -l\n```\n") == "ls -l"


def test_escaped_pipe_does_not_separate_cells() -> None:
    assert cells("| a \\| b | c |") == ["a | b", "c"]
    assert cells("| --- |") == []
