"""Where prompts come from, by GPT-NeoX's text_gen_type, and the file of texts in its format."""

from __future__ import annotations

import io
import json
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neoxlite.errors import ConfigError, NeoxliteError
from neoxlite.model.prompts import TextFile, prompts_of, typed


def config(**keys: Any) -> Any:
    """Return the keys of text generation with GPT-NeoX's defaults."""
    return SimpleNamespace(**{"text_gen_type": "unconditional", "sample_input_file": None, "prompt_end": "\n", **keys})


def test_each_kind_of_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A given text goes before everything, an input file before text_gen_type."""
    file = tmp_path / "入力"
    file.write_text("one\n\n  two \n三", encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO("a\nb\n"))
    assert list(prompts_of(config(), "x", None, 2)) == ["x", "x"]
    assert list(prompts_of(config(), None, None, 3)) == ["", "", ""]
    assert list(prompts_of(config(), None, str(file), 1)) == ["one", "  two ", "三"]
    in_file = config(text_gen_type="input-file", sample_input_file=str(file))
    assert list(prompts_of(in_file, None, None, 2)) == ["one", "one", "  two ", "  two ", "三", "三"]
    assert list(prompts_of(config(text_gen_type="interactive"), None, None, 1)) == ["a", "b"]


def test_prompts_end_where_the_configuration_says() -> None:
    """prompt_end closes a prompt of several lines; the end of the input closes the last one."""
    assert list(typed(io.StringIO("a\nb END\nc END\nd"), "END")) == ["a\nb ", "c ", "d"]
    assert list(typed(io.StringIO(""), "\n")) == []


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"text_gen_type": "input-file"}, "needs sample_input_file"),
        ({"text_gen_type": "input-file", "sample_input_file": "no/such"}, "No such file or directory"),
        ({"text_gen_type": "input-file", "sample_input_file": "."}, "Is a directory"),
        ({"text_gen_type": "input-file", "sample_input_file": "@bytes"}, "no UTF-8 text"),
        ({"text_gen_type": "precompute"}, "precompute is not supported"),
    ],
)
def test_prompts_that_cannot_be_read(keys: dict[str, str], told: str, tmp_path: Path) -> None:
    """The key or file is named, with what to do."""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe text")
    keys = {key: value.replace("@", f"{tmp_path}/") for key, value in keys.items()}
    with pytest.raises(ConfigError) as caught:
        list(prompts_of(config(**keys), None, None, 1))
    assert told in caught.value.message
    assert caught.value.hint


def test_the_file_of_texts(tmp_path: Path) -> None:
    """One JSON object a line, with the names that GPT-NeoX gives."""
    with closing(TextFile(str(tmp_path / "texts"))) as file:
        file.add("def", " f():\n", 4, finished=False, seconds=0.25)
        file.add("", "終", 1, finished=True, seconds=1.0)
    first, second = (json.loads(line) for line in (tmp_path / "texts").read_text(encoding="utf-8").splitlines())
    assert first == {
        "context": "def",
        "text": " f():\n",
        "length": 4,
        "finished": False,
        "message": None,
        "duration_seconds": 0.25,
    }
    assert (second["text"], second["finished"]) == ("終", True)
    with pytest.raises(NeoxliteError, match=r"sample_output_file .*nowhere/texts cannot be written"):
        TextFile(str(tmp_path / "nowhere/texts"))
