"""``hpcjob plot`` as it is typed: the terminal, pictures, the page as a text; what it refuses."""

from __future__ import annotations

import gzip
import html.parser
import io
import json
import random
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from hpcjob.cli import main
from tests.hpcjob.report.written import loaded, neox_line, saved, write

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\"'`\u202e$x$ [red]"


@pytest.fixture
def logs(here: Path) -> Path:
    """Two runs: one with a spike, a NaN, a restart, checkpoints and a validation; one of three rows."""
    lines = []
    for step in range(10, 610, 10):
        loss = "nan" if step == 500 else "4.5" if step == 300 else f"{2 + step % 7 / 1000}"
        lines.append(neox_line(step, loss))
        if step % 200 == 0:
            lines.append(saved(step))
    lines += [loaded(600), *(neox_line(step, "2.25") for step in (610, 620))]
    lines.append(" validation results at iteration 620 | lm_loss value: 2.5E+00 | lm_loss_ppl value: 1.2E+01 |\n")
    write(here / "実験.log", lines)
    write(here / "b.log", [neox_line(step, "3.0") for step in (10, 20, 30)])
    return here


def test_terminal(logs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A chart for each quantity, marks, and each run in words; no colours where no terminal is."""
    pytest.importorskip("plotext")
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["plot", "実験.log", "b.log"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    for heading in ("Loss (nats/token)", "Learning rate", "Throughput (tokens/s)", "Gradient norm", "Step time (ms)"):
        assert heading in out
    assert max(map(len, out.split("\nmarks")[0].splitlines())) <= 100
    loss = out.split("Learning rate")[0]
    assert {mark: mark in loss for mark in "ovx:^"} == dict.fromkeys("ovx:^", True)
    assert out.splitlines()[-3:] == [
        "a  実験: iteration 620, loss 2.25, lowest 2 at 70, validation 2.5, 56,005 tokens/s, 1 restart "
        "(0 iterations repeated), 3 checkpoints",
        "a     3 spikes of the loss: at 300 (4.5), 500 (not finite), 610 (2.25)",
        "b  b: iteration 30, loss 3, lowest 3 at 10, 56,005 tokens/s",
    ]


@pytest.mark.parametrize("more", [["--log"], ["-m", "lr"], ["--from", "20", "--to", "20"], ["--no-merge"]])
def test_terminal_options(logs: Path, capsys: pytest.CaptureFixture[str], more: list[str]) -> None:
    """They all draw something."""
    pytest.importorskip("plotext")
    assert main(["plot", "b.log", "実験.log", *more]) == 0
    out = capsys.readouterr().out
    assert ("Loss" in out) == ("lr" not in more)
    assert "─" in out


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        pytest.param("x.svg", b"<?xml", marks=pytest.mark.ci),
        pytest.param("x.png", b"\x89PNG\r\n\x1a\n", marks=pytest.mark.ci),
        pytest.param("x.pdf", b"%PDF", marks=pytest.mark.ci),
    ],
)
def test_picture(logs: Path, name: str, begin: bytes) -> None:
    """The suffix says what is made; the same runs make the same file."""
    pytest.importorskip("matplotlib")
    (logs / f"{'_$x$<b>'}.log").write_bytes((logs / "b.log").read_bytes())
    command = ["plot", "実験.log", "_$x$<b>.log", "-m", "loss", "-o"]
    assert main([*command, name]) == 0
    first = Path(name).read_bytes()
    assert first.startswith(begin)
    if name.endswith(".svg"):
        texts = {text.strip() for text in ElementTree.fromstring(first).itertext()}
        assert {"実験", "\u200b_$x$<b>", "Loss (nats/token)"} <= texts
    assert main([*command, name]) == 0
    assert Path(name).read_bytes() == first


def test_sources(logs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed files, patterns, directories and standard input."""
    (logs / "sub").mkdir()
    (logs / "sub" / "c.log.gz").write_bytes(gzip.compress((logs / "b.log").read_bytes()))
    (logs / "sub" / "metrics.jsonl").write_text('{"iteration": 1, "loss": 2.0}\n')

    def names(*words: str) -> list[tuple[str, int]]:
        assert main(["plot", "--json", *words]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [(row["name"], row["rows"]) for row in rows]

    assert names("sub/c.log.gz") == [("c", 3)]
    assert names("sub/*.gz", "b.log") == [("c", 3), ("b", 3)]
    assert names("sub") == [("c", 3)]
    assert names("sub/metrics.jsonl") == [("metrics", 1)]
    (logs / "sub" / "c.log.gz").unlink()
    assert names("sub") == [("sub", 1)]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((logs / "b.log").read_bytes())))
    assert names("-") == [("stdin", 3)]


class Page(html.parser.HTMLParser):
    """The tags and texts of a page, as a reader of HTML sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self._open[-1] if self._open else "", []).append(data)

    @property
    def data(self) -> dict[str, Any]:
        """What the script draws."""
        found: dict[str, Any] = json.loads(self.texts["script"][0])
        return found


def test_page(logs: Path) -> None:
    """The numbers in the page are those of the log; nothing in it comes from elsewhere."""
    assert main(["plot", "実験.log", "b.log", "-o", "r.html"]) == 0
    text = Path("r.html").read_text(encoding="utf-8")
    page = Page(text)
    loss = page.data["charts"][0]["series"][0]
    told = re.findall(r"iteration +(\d+)/.*?lm_loss: (\S+)", (logs / "実験.log").read_text(encoding="utf-8"))
    assert loss["x"] == [int(step) for step, _ in told]
    assert loss["y"] == [None if value == "nan" else float(value) for _, value in told]
    assert [(one["at"], one["value"]) for one in loss["spikes"]] == [(300, 4.5), (500, None), (610, 2.25)]
    assert page.data["runs"][0] == {
        "name": "実験",
        "restarts": [{"at": 600, "repeated": 0}],
        "checkpoints": [200, 400, 600],
    }
    assert not [attributes for _, attributes in page.tags if {"src", "srcset", "action", "style"} & set(attributes)]
    assert {attributes["href"] for _, attributes in page.tags if "href" in attributes} == {"data:,", "#charts"}
    assert re.findall(r"https?://[^\"']+", text) == ["http://www.w3.org/2000/svg"]  # a name, nothing is fetched
    assert "url(" not in re.sub(r"url\(#\$\{clip\}\)", "", text)


@pytest.mark.parametrize("name", [HOSTILE, "<!--", "<script>", "-->", "@@SCRIPT@@", "a\u2028b"])
def test_a_hostile_name(here: Path, name: str) -> None:
    """What a run is called is text, in the page's words and in its data."""
    folder = here / "x"
    write(folder / (name.replace("/", "\N{DIVISION SLASH}") + ".log"), [neox_line(10, "2.0")])
    assert main(["plot", "x", "-o", "r.html"]) == 0
    page = Page(Path("r.html").read_text(encoding="utf-8"))
    assert [tag for tag, _ in page.tags if tag in ("script", "img", "iframe")] == ["script", "script"]
    assert page.data["runs"][0]["name"] == name.replace("/", "\N{DIVISION SLASH}")
    assert name.replace("/", "\N{DIVISION SLASH}") in page.texts["h1"][0]


def test_the_page_of_a_hostile_script_end() -> None:
    """Even a real end of a script element inside a name ends nothing."""
    from hpcjob.report.page import script_safe

    safe = script_safe({"name": HOSTILE})
    assert not set("<>&") & set(safe)
    assert json.loads(safe) == {"name": HOSTILE}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["b.log", "-o", "x.doc"], "--output x.doc: the name does not say what to make\n        let it end in .html,"),
        (["b.log", "-m", "los"], "--metric los: there is no such quantity\n        one of: loss, lr, tokens_per_s,"),
        (
            ["b.log", "-m", "memory_gib"],
            "no memory_gib in these logs\n        they have loss, lr, tokens_per_s, tflops,",
        ),
        (["b.log", "--from", "99"], "no iteration found in b\n"),
        (["b.log", "--json", "-o", "x.html"], "--json and --output: one of them\n        --json writes to standard"),
        (["none.log"], "no jobs are recorded here, and no file 'none.log' is here\n"),
        (["*.nothing"], "*.nothing: no file of that pattern\n"),
        (["folder"], "no log found there\n"),
        (["noise.bin"], "no iteration found in noise\n"),
        (["b.log", "-o", "no/such/x.html"], "--output: no/such/x.html: No such file or directory\n"),
    ],
)
def test_refused(logs: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    """One line what is wrong, one line what to do."""
    (logs / "folder").mkdir()
    (logs / "noise.bin").write_bytes(random.Random(1).randbytes(100_000))
    assert main(["plot", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"hpcjob: {told}")


def test_runs_without_iterations_are_named(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty log among others is left out, and that is said."""
    (logs / "empty.log").write_bytes(b"")
    assert main(["plot", "b.log", "empty.log", "--json"]) == 0
    assert capsys.readouterr().err == "hpcjob: empty: no iteration found; skipped\n"


@pytest.mark.parametrize(
    ("module", "arguments"), [("plotext", ["plot", "b.log"]), ("matplotlib", ["plot", "b.log", "-o", "x.png"])]
)
def test_without_the_extra(
    logs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, module: str, arguments: list[str]
) -> None:
    """What is missing is named with what installs it; the page, CSV and event files need nothing more."""
    monkeypatch.setitem(sys.modules, module, None)
    assert main(arguments) == 1
    wanted = f"hpcjob: this needs {module}, which is not installed\n        pip install 'hpcjob[report]'\n"
    assert capsys.readouterr().err == wanted
    for other in (["plot", "b.log", "-o", "x.html"], ["export", "b.log", "--csv"]):
        assert main(other) == 0
    assert main(["export", "b.log", "--tensorboard", "-o", "board"]) == 0
    assert not Path("x.png").exists()


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(50_000, marks=pytest.mark.ci),
        pytest.param(1_000_000, marks=[pytest.mark.full, pytest.mark.timeout(1800)]),
    ],
)
def test_a_long_run(here: Path, count: int) -> None:
    """The page stays small; each spike of the log is drawn and marked; ends and extremes are there."""
    planted = range(count // 100 + 7, count, count // 50)
    with (here / "long.jsonl").open("w") as file:
        for step in range(1, count + 1):
            loss = 5.0 if step in planted else 2 + step * 7919 % 1009 / 1e5
            file.write(f'{{"iteration": {step}, "loss": {loss}, "grad_norm": {1 + step % 13 / 100}, "lr": 1e-4}}\n')
    assert main(["plot", "long.jsonl", "-o", "long.html"]) == 0
    assert Path("long.html").stat().st_size < 5_000_000
    loss = Page(Path("long.html").read_text(encoding="utf-8")).data["charts"][0]["series"][0]
    drawn = dict(zip(loss["x"], loss["y"], strict=True))
    assert {step: drawn.get(step) for step in planted} == dict.fromkeys(planted, 5.0)
    assert [spike["at"] for spike in loss["spikes"]] == list(planted)
    assert (loss["x"][0], loss["x"][-1], loss["total"]) == (1, count, count)
    assert len(loss["x"]) <= 6_000
    assert min(loss["y"]) == 2.0


ODD = {
    "one": ['{"iteration": 5, "loss": 2.0}'],
    "zero": ['{"iteration": 0, "loss": 0.0}', '{"iteration": 1, "loss": 0}'],
    "huge": [
        '{"iteration": 1, "loss": 1.7e308}',
        '{"iteration": 2, "loss": -1.7e308}',
        '{"iteration": 3, "loss": 1e99}',
    ],
    "tiny": [f'{{"iteration": {step}, "loss": 5e-324}}' for step in range(30)],
    "not finite": [f'{{"iteration": {step}, "loss": null}}' for step in range(30)],
    "large steps": [f'{{"iteration": {step}, "loss": 2.0}}' for step in (1, 4 * 10**17, 4 * 10**17 + 1)],
    "negative": [f'{{"iteration": {step}, "loss": -2.0}}' for step in range(30)],
    "no loss": [f'{{"iteration": {step}, "lr": 0.5}}' for step in range(30)],
    "backwards": [f'{{"iteration": {step}, "loss": {step}}}' for step in range(30, 0, -1)],
}


@pytest.mark.parametrize("name", ODD)
def test_odd_numbers(here: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Whatever a log tells is drawn, exported and summed up: no traceback, no warning, no number made up."""
    pytest.importorskip("plotext")
    (here / "odd.log").write_text("\n".join(ODD[name]) + "\n")
    commands = [["plot", "odd.log", "-o", "x.html"], ["plot", "odd.log", "--json"], ["export", "odd.log", "--csv"]]
    for command in [*commands, ["export", "odd.log", "--json"], ["export", "odd.log", "--tensorboard", "-o", "board"]]:
        assert main(command) == 0
    for log in ([], ["--log"]):
        assert main(["plot", "odd.log", *log]) == 0
    capsys.readouterr()


@pytest.mark.ci
@pytest.mark.parametrize("name", ODD)
def test_pictures_of_odd_numbers(here: Path, name: str) -> None:
    """The same for pictures."""
    pytest.importorskip("matplotlib")
    (here / "odd.log").write_text("\n".join(ODD[name]) + "\n")
    for arguments in (["-o", "x.svg"], ["-o", "x.svg", "--log"]):
        assert main(["plot", "odd.log", *arguments]) == 0


def test_many_runs(here: Path) -> None:
    """Forty runs share the points that fit into a page."""
    for run in range(40):
        lines = [neox_line(step, f"{2 + step * 7919 % 1009 / 1e5}") for step in range(1, 31)]
        write(here / f"{run}.log", lines)
    assert main(["plot", "*.log", "-o", "many.html"]) == 0
    page = Page(Path("many.html").read_text(encoding="utf-8"))
    assert len(page.data["runs"]) == 40
    assert page.texts["h1"] == ["Training runs: 0, 1, 10, 11 and 36 more"]
    assert all(len(one["x"]) == 30 for chart in page.data["charts"] for one in chart["series"])


def test_a_missing_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a browser its tests are skipped with the reason; in continuous integration they fail."""
    from tests.hpcjob.report.browser import find_browser

    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("HPCJOB_BROWSER", raising=False)
    for value, kind in (("", pytest.skip.Exception), ("true", pytest.fail.Exception)):
        monkeypatch.setenv("CI", value)
        with pytest.raises(kind, match="no Chromium here"):
            find_browser()
