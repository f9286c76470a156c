"""Scanning by shape misses nothing, whatever the cuts, and its memory stays bounded."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from hpcjob.logs.scan import Interest, Shapes, scan
from hpcjob.logs.shape import shape

NEEDLES = (b"out of memory", b"code = -9", b"rank3")
pieces = st.lists(
    st.sampled_from(
        [b"\n", b"out of ", b"memory", b"code = -", b"9", b"8", b"rank", b"3", b"abc", b" ", b"\xff\0", b"x" * 50]
    ),
    max_size=60,
)


class Slow(io.BytesIO):
    """A stream that gives less than it is asked for."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(7)


@given(data=pieces.map(b"".join))
@settings(max_examples=300, deadline=None)
def test_every_line_with_a_needle_is_found(data: bytes) -> None:
    """Against looking into each line: number, offset and bytes, with blocks of any size."""
    expected = []
    offset = 0
    for number, text in enumerate(data.split(b"\n"), 1):
        if any(needle in text for needle in NEEDLES):
            expected.append((number, offset, text))
        offset += len(text) + 1
    for stream in (io.BytesIO(data), Slow(data)):
        found = scan(stream, Shapes([(Interest.ALL, NEEDLES)]))
        assert [item for item in found if any(needle in item[2] for needle in NEEDLES)] == expected


@given(first=st.binary(max_size=20), second=st.binary(max_size=20), third=st.binary(max_size=20))
def test_shape_of_a_part_is_part_of_the_shape(first: bytes, second: bytes, third: bytes) -> None:
    """Which is why looking for needles in shapes misses none."""
    assert shape(second) in shape(first + second + third)


def test_numbers_do_not_make_new_shapes() -> None:
    """Lines that differ in ranks, addresses and values are of one shape; what they say else is another."""
    text = "gpu{:04d}:{}:{} [{}] NCCL INFO comm 0x{:x} rank {} nranks 16 - Init COMPLETE"
    assert len({shape(text.format(i, i * 3, i * 7, i % 8, i * 12345, i).encode()) for i in range(1000)}) == 1
    assert shape(b"loss: 1.5") != shape(b"loss: nan")


def test_progress_gives_the_last_line_and_floods_the_first() -> None:
    """Of lines that tell progress the latest is read, before what comes after it; of floods some."""
    lines = [b"iteration %d" % number for number in range(5000)]
    flood = [b"via P2P/%d" % number for number in range(5000)]
    shapes = Shapes([(Interest.LAST, [b"iteration"]), (Interest.SOME, [b"via P2P"]), (Interest.ALL, [b"error"])])
    data = b"\n".join([*lines, *flood, b"error"])
    found = [text for _, _, text in scan(io.BytesIO(data), shapes)]
    assert lines[-1] in found
    assert found[-1] == b"error"
    assert sum(text.startswith(b"iteration") for text in found) < 10
    assert 1 < sum(text.startswith(b"via") for text in found) < 100


def test_what_follows_a_beginning_is_given_until_it_ends() -> None:
    """Within a traceback every line counts, although its shape is of no interest."""
    data = b"a\nbegin\nb\nc\nend\nd\n" * 2
    pending = False
    found = []

    def lines() -> Iterator[bytes]:
        for _, _, text in scan(io.BytesIO(data), Shapes([(Interest.ALL, [b"begin"])]), pending=lambda: pending):
            yield text

    for text in lines():
        found.append(text)
        pending = text != b"end" and (pending or text == b"begin")
    assert found == [b"begin", b"b", b"c", b"end"] * 2


def test_endless_lines_take_bounded_memory() -> None:
    """Two lines of 60 MB each; what follows has its own number and offset."""

    class Endless(io.RawIOBase):
        def __init__(self) -> None:
            self.left = [b"y" * 1_000_000] * 60 + [b"\n"] + [b"y" * 1_000_000] * 60 + [b"\nrank3\n"]

        def read(self, size: int = -1, /) -> bytes:
            return self.left.pop(0) if self.left else b""

    tracemalloc.start()
    found = list(scan(Endless(), Shapes([(Interest.ALL, NEEDLES)])))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [(3, 120_000_002, b"rank3")]
    assert peak < 20_000_000
