"""The journal contains exactly the appended events, however a process ended."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.events.storage.journal import Journal, JournalFile


def drain(journal: Journal, limit: int = 100) -> list[bytes]:
    found: list[bytes] = []
    while journal.waiting:
        payloads, done = journal.replay(limit)
        found += payloads
        done()
    return found


def test_events_are_replayed_once_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "events")
    journal.append([b"1", b"2"])
    journal.append([b"3"])
    assert drain(journal, limit=2) == [b"1", b"2", b"3"]
    assert journal.replay(10)[0] == []
    journal.append([b"4"])
    assert drain(journal) == [b"4"]
    journal.close()


def test_unconfirmed_replay_is_repeated(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "events")
    journal.append([b"1", b"2"])
    assert journal.replay(1)[0] == [b"1"]
    assert journal.replay(1)[0] == [b"1"]
    journal.close()


def test_file_exists_only_while_events_are_pending(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "folder" / "events")
    journal.adopt()
    assert list(tmp_path.iterdir()) == []
    journal.append([b"1"])
    assert len(list((tmp_path / "folder").iterdir())) == 1
    assert drain(journal) == [b"1"]
    journal.close()
    assert list((tmp_path / "folder").iterdir()) == []


def test_file_of_a_dead_process_is_adopted(tmp_path: Path) -> None:
    gone = Journal(tmp_path / "events")
    gone.append([b"1", b"2"])
    gone.close()
    journal = Journal(tmp_path / "events")
    journal.adopt()
    assert drain(journal) == [b"1", b"2"]
    assert list(tmp_path.iterdir()) == []
    journal.close()


def test_file_of_a_running_process_is_left_alone(tmp_path: Path) -> None:
    other = Journal(tmp_path / "events")
    other.append([b"1"])
    journal = Journal(tmp_path / "events")
    journal.adopt()
    assert journal.waiting == 0
    journal.close()
    assert drain(other) == [b"1"]
    other.close()


def test_adopting_again_takes_no_file_twice(tmp_path: Path) -> None:
    gone = Journal(tmp_path / "events")
    gone.append([b"1"])
    gone.close()
    journal = Journal(tmp_path / "events")
    journal.adopt()
    journal.append([b"2"])
    journal.adopt()
    assert drain(journal) == [b"1", b"2"]
    journal.close()


@given(payloads=st.lists(st.binary(min_size=1).filter(lambda data: b"\n" not in data), min_size=1), data=st.data())
def test_truncated_file_yields_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(folder / "events")
    ends = []
    for payload in payloads:
        journal.append([payload])
        ends.append(journal.waiting)
    journal.close()
    (path,) = folder.iterdir()
    cut = data.draw(st.integers(0, ends[-1]))
    os.truncate(path, cut)
    reader = Journal(folder / "events")
    reader.adopt()
    assert drain(reader) == payloads[: sum(end <= cut for end in ends)]
    reader.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line[:20] + b"X" + line[21:],
        lambda line: b"00000000" + line[8:],
        lambda line: b"garbage\n",
        lambda line: b"\n",
        lambda line: line.replace(b" 30 ", b" 31 "),
    ],
)
def test_damaged_line_loses_only_itself(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    journal = Journal(tmp_path / "events")
    journal.append([b"a" * 30, b"b" * 30, b"c" * 30])
    journal.close()
    (path,) = tmp_path.iterdir()
    first, second, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + damage(second) + third)
    reader = Journal(tmp_path / "events")
    reader.adopt()
    assert drain(reader) == [b"a" * 30, b"c" * 30]
    reader.close()


def test_truncated_file_ends_where_it_was_cut(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "events")
    journal.append([b"1", b"2"])
    (path,) = tmp_path.iterdir()
    os.truncate(path, 0)
    assert drain(journal) == []
    journal.close()


def test_failed_append_leaves_no_partial_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "events")
    journal.append([b"1"])
    with monkeypatch.context() as patch:
        write = os.pwrite
        full = OSError(28, "No space left on device")
        written: list[int] = []

        def fail_after_a_few_bytes(descriptor: int, data: bytes, offset: int) -> int:
            if written:
                raise full
            written.append(write(descriptor, data[:5], offset))
            return written[0]

        patch.setattr(os, "pwrite", fail_after_a_few_bytes)
        with pytest.raises(OSError, match="No space left"):
            journal.append([b"lost"])
    journal.append([b"2"])
    assert drain(journal) == [b"1", b"2"]
    journal.close()


def test_file_removed_while_opening_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "events.x.jsonl"
    assert JournalFile.open(path) is None
    with pytest.raises(OSError, match="No such file"):
        JournalFile.open(tmp_path / "missing" / "events.x.jsonl", create=True)


def test_rejected_events_are_kept_aside_and_not_replayed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "events")
    journal.reject([b"1"])
    journal.reject([b"2"])
    journal.adopt()
    assert journal.waiting == 0
    assert (tmp_path / "events.rejected").read_bytes() == b"1\n2\n"
    journal.close()
