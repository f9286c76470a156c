"""``neoxlite data`` from the command line, one step after the other as the quickstart does."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from neoxlite.cli import main
from neoxlite.data.indexed import IndexedDataset
from neoxlite.tokenizers import build_tokenizer


def test_quickstart_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Collect, train a tokenizer, tokenize both parts, inspect, baselines: each works on what the one before wrote."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")  # restored when the test ends; the command sets its own
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    assert main(["data", "collect-python", "--output", "text", "--max-mib", "0.5"]) == 0
    assert "text/train.jsonl: " in capsys.readouterr().out
    tokenizer = ["--output", "t/tokenizer.json", "--vocab-size", "600"]
    assert main(["data", "train-tokenizer", "--input", "text/train.jsonl", *tokenizer]) == 0
    assert capsys.readouterr().out == "t/tokenizer.json: 600 tokens\n"
    for part in ("train", "valid"):
        options = ["--tokenizer-type", "HFTokenizer", "--vocab-file", "t/tokenizer.json", "--append-eod"]
        where = ["--input", f"text/{part}.jsonl", "--output-prefix", part, "--workers", "2", "--log-interval", "1"]
        assert main(["data", "tokenize", *where, *options]) == 0
        told = capsys.readouterr()
        assert told.out.startswith(f"{part}_text_document.bin and .idx\n")
        assert "% done" in told.err
        dataset = IndexedDataset(f"{part}_text_document")
        assert dataset.verify().largest_id < 600
        assert all(dataset[number][-1] == 0 for number in range(len(dataset)))
    assert main(["data", "inspect", "train_text_document", "--tokenizer", "t/tokenizer.json", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    first = json.loads((tmp_path / "text" / "train.jsonl").read_text(encoding="utf-8").splitlines()[0])["text"]
    assert first.startswith(report["first_text"])
    assert (report["dtype"], report["vocab_size"], report["format"]) == ("uint16", 600, "mmap")
    both = ["--train", "train_text_document", "--valid", "valid_text_document"]
    assert main(["data", "baselines", *both, "--vocab-size", "600", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert 0 < result["bigram"] < result["unigram"] < 6.4  # log 600
    assert main(["data", "baselines", *both]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told] == ["unigram", "bigram", "fitted"]
    assert abs(float(told[1].split()[-2]) - result["bigram"]) < 0.1  # the default vocabulary is a little smaller


def test_inspect_for_people(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plain report, with a note where upstream's merge lost the boundaries."""
    assert main(["data", "inspect", str(golden / "datasets" / "u16_merged"), "--tokens", "3"]) == 0
    told = capsys.readouterr()
    assert "boundaries do not cover all sequences" in told.err
    assert "tokens               9,147\n" in told.out
    assert "longest sequence     59\n" in told.out
    assert "document boundaries  no\n" in told.out
    assert "first text" not in told.out


def test_inspect_decodes_by_the_tokenizer_that_made_the_dataset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The description beside it names it; one that needs files is not guessed, nor one of the name with other ids."""
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text('{"text": "日本語 and more"}\n')
    made = ["tokenize", "--input", "a.jsonl", "--output-prefix", "a", "--tokenizer-type", "CharLevelTokenizer"]
    assert main(["data", *made]) == 0
    assert "1 document, 18 tokens, " in capsys.readouterr().out
    assert main(["data", "inspect", "a_text_document"]) == 0
    assert "first text           '日本語 and more'\n" in capsys.readouterr().out
    info = Path("a_text_document.info.json")
    for old, new in (("CharLevelTokenizer", "HFTokenizer"), ("HFTokenizer", "GPT2BPETokenizer")):
        info.write_text(info.read_text().replace(old, new))
        assert main(["data", "inspect", "a_text_document"]) == 0
        assert "first text" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["inspect", "無い"], 2, "neoxlite: no dataset 無い: 無い.idx does not exist\n          there is no .idx file"),
        (
            ["tokenize", "--input", "a.jsonl,,b.jsonl", "--output-prefix", "x", "--tokenizer-type", "C"],
            2,
            "has an empty part",
        ),
        (["tokenize", "--output-prefix", "x", "--tokenizer-type", "C"], 2, "Missing option '--input'"),
        (
            ["tokenize", "--input", "a.jsonl", "--output-prefix", "x", "--tokenizer-type", "SPM"],
            2,
            "neoxlite: tokenizer_type SPM is unknown\n          known: HFTokenizer, ",
        ),
        (
            ["tokenize", "--input", "a.jsonl", "--output-prefix", "x", "--tokenizer-type", "CharLevelTokenizer"],
            2,
            "neoxlite: input a.jsonl: no such file\n",
        ),
        (["train-tokenizer", "--input", "a.jsonl", "--output", "t.json"], 2, "neoxlite: input a.jsonl: no such file"),
        (["baselines", "--train", "a", "--valid", "b"], 2, "neoxlite: no dataset a: "),
        (["collect-python", "--output", "o", "--valid-fraction", "0"], 2, "neoxlite: the valid fraction is 0"),
    ],
)
def test_mistakes(
    arguments: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every mistake is two lines on stderr, the code of refused input, and no traceback."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    assert main(["data", *arguments]) == code
    told = capsys.readouterr()
    assert message in told.err
    assert "Traceback" not in told.err
    assert told.out == ""


def test_wrong_tokenizer_is_noticed(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dataset with ids outside the tokenizer's vocabulary is not decoded into nonsense."""
    tokenizer = str(golden / "tokenized" / "own_bpe_tokenizer.json")
    assert main(["data", "inspect", str(golden / "datasets" / "u16_rand"), "--tokenizer", tokenizer]) == 2
    assert "token 50256 lies outside the tokenizer's vocabulary of 600" in capsys.readouterr().err


def test_output_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder below a file, a name that is too long or taken: two lines before any work, and code 1 or 2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    (tmp_path / "file").write_text("")
    (tmp_path / "a.jsonl").write_text('{"text": "some text"}\n')
    (tmp_path / "taken_text_document.idx").mkdir()
    tokenize = ["tokenize", "--input", "a.jsonl", "--tokenizer-type", "CharLevelTokenizer", "--output-prefix"]
    for arguments, code, message in (
        (["collect-python", "--output", "file/out"], 1, "file/out cannot be written: Not a directory"),
        (
            ["train-tokenizer", "--input", "a.jsonl", "--output", "file/t.json", "--vocab-size", "260"],
            1,
            "file/t.json can",
        ),
        ([*tokenize, "x" * 300], 1, "cannot be written: File name too long"),
        ([*tokenize, "taken"], 2, "taken_text_document.idx is a folder"),
        (["inspect", "y" * 300], 2, "cannot be read: File name too long"),
    ):
        assert main(["data", *arguments]) == code
        told = capsys.readouterr().err
        assert message in told
        assert len(told.splitlines()) == 2 + ("train-tokenizer" in arguments and "tokens only" in told)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "file", "taken_text_document.idx"]


def test_gpt2_vocabulary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """gpt2-vocab writes GPT-NeoX's two files, which are read as the vocabulary of the package."""
    assert main(["data", "gpt2-vocab", "--output", str(tmp_path / "data")]) == 0
    files = [tmp_path / "data" / name for name in ("gpt2-vocab.json", "gpt2-merges.txt")]
    assert capsys.readouterr().out.splitlines() == list(map(str, files))
    text = "日本語 and\n\ttext<|endoftext|>"
    assert build_tokenizer("GPT2BPETokenizer", *files).encode(text) == build_tokenizer("GPT2BPETokenizer").encode(text)


def test_names_of_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """The commands that users of GPT-NeoX know as scripts stand at the top too: the same ones."""
    from neoxlite.cli.data import data
    from neoxlite.cli.group import cli

    for name, other in (("tokenize", "tokenize"), ("prepare-data", "prepare")):
        assert cli.get_command(click.Context(cli), name) is data.get_command(click.Context(data), other)
        assert main([name, "--help"]) == 0
        assert f"Usage: neoxlite {name} " in capsys.readouterr().out


def test_command_lines_of_upstreams_tool(tmp_path: Path) -> None:
    """Keys as words, ``find | tr`` lists that end in a comma, and --num-docs, which leaves nothing out."""
    for name, text in (("a", "ab"), ("b", "c")):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": text, "題": "日" + text}) + "\n", encoding="utf-8")
    names = "".join(f"{path}," for path in sorted(tmp_path.glob("*.jsonl")))
    line = [f"--input={names}", "--jsonl-keys", "text", "題", f"--output-prefix={tmp_path / 'out'}", "--num-docs", "1"]
    assert main(["tokenize", *line, "--tokenizer-type=CharLevelTokenizer", "--append-eod"]) == 0
    texts, titles = (IndexedDataset(tmp_path / f"out_{key}_document") for key in ("text", "題"))
    assert [texts[number].tolist() for number in range(len(texts))] == [[97, 98, 0], [99, 0]]
    assert [titles[number].tolist() for number in range(len(titles))] == [[*"日ab".encode(), 0], [*"日c".encode(), 0]]
    one = ["--input", names, "--output-prefix", str(tmp_path / "one"), "--tokenizer-type", "CharLevelTokenizer"]
    assert main(["tokenize", *one, "--max-docs", "1"]) == 0
    assert len(IndexedDataset(tmp_path / "one_text_document")) == 1
