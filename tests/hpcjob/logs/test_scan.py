"""Scanning by shape misses nothing, whatever the cuts, and its memory stays bounded."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from hpcjob.logs.events import Iteration
from hpcjob.logs.lines import LineParser
from hpcjob.logs.metrics import Metrics
from hpcjob.logs.output import Output
from hpcjob.logs.scan import Scanner, scan
from hpcjob.logs.shape import shape
from hpcjob.logs.shapes import Interest, Shapes
from hpcjob.logs.views import LossView

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


@given(
    kinds=st.lists(st.sampled_from(["iteration", "noise", "flood"]), max_size=60),
    cuts=st.integers(1, 9),
    count=st.integers(0, 12),
)
@settings(max_examples=100, deadline=None)
def test_the_last_rows_are_those_of_the_whole(kinds: list[str], cuts: int, count: int) -> None:
    """Of a pipe only the blocks that come last are looked into: the last rows are the same as of all lines."""
    texts = {
        "iteration": " iteration {n}/ 100 | lm_loss: 2.5 | learning rate: 1.0 |",
        "noise": "word {n}",
        "flood": "node01:1:2 [0] NCCL INFO Channel {n}\n" * 5,
    }
    lines = [texts[kind].format(n=number) for number, kind in enumerate(kinds)]
    view = LossView(Output(io.StringIO()), Metrics(None))
    parser = LineParser("log")

    def rows(shapes: Shapes) -> list[int]:
        scanner = Scanner(shapes)
        found = []
        for at in range(0, len(lines), cuts):
            found += scanner.feed("".join(f"{text}\n" for text in lines[at : at + cuts]).encode())
        found += scanner.finish()
        events = [event for _, offset, data in found for event in view.pick(parser.parse(offset, data))]
        return [event.iteration for event in events if isinstance(event, Iteration) and event.iteration is not None]

    whole = rows(view.shapes())
    assert rows(view.shapes(count))[-count or len(whole) :] == whole[-count or len(whole) :]


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


def test_bytes_that_are_no_text_are_not_searched() -> None:
    """Of two lines with a needle the one among control characters is passed over: no two of its kind are alike."""
    garbage = bytes(range(1, 9)) * 4 + b"out of memory"
    data = b"x out of memory\n" + garbage.replace(b"\n", b"") + b"\n"
    found = [text for _, _, text in scan(io.BytesIO(data), Shapes([(Interest.ALL, NEEDLES)]))]
    assert found == [b"x out of memory"]
