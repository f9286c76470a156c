"""Files: how they are found and put together, and what happens to damaged ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from neoxlite.config import ConfigError, load_config
from neoxlite.config.reader import find_file, read_files
from tests.neoxlite.config.samples import Load, minimal_text

# 24 lines, each nine times the one before: 9**24 values when followed.
_ALIASES_OF_ALIASES = b"a: &a [x]\n" + b"".join(
    b"%c: &%c [%b]\n" % (letter, letter, b", ".join([b"*%c" % (letter - 1)] * 9))
    for letter in range(ord("b"), ord("z"))
)


def _write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.yml").write_text(text, encoding="utf-8")


def test_several_files_without_suffix_in_a_folder(tmp_path: Path) -> None:
    """``-d DIR a b``: names are relative to DIR, .yml is added, keys are put together, texts are kept whole."""
    _write(tmp_path, model=minimal_text(), setup="# paths\ndata-path: データ/コーパス\n")
    cfg = load_config(["model", "setup"], tmp_path)
    assert cfg.num_layers == 4
    assert cfg.data_path == "データ/コーパス"
    assert cfg.source("data_path") == "setup.yml:2"
    assert cfg.source("num_layers") == "model.yml:1"
    assert cfg.source("weight_decay") == "default"
    assert cfg.config_files == {"model.yml": minimal_text(), "setup.yml": "# paths\ndata-path: データ/コーパス\n"}


def test_japanese_and_spaced_paths(tmp_path: Path) -> None:
    """Folders and files with Japanese names and spaces are read, and named in errors as they are."""
    folder = tmp_path / "設定 ファイル"
    folder.mkdir()
    (folder / "モデル.yml").write_text(minimal_text(num_layrs=3), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"設定 ファイル/モデル\.yml:15: num_layrs is not a GPT-NeoX key"):
        load_config("モデル", folder)


def test_json_style_with_tabs(tmp_path: Path) -> None:
    """The look of GPT-NeoX's files: one {...} block, quotes, comments, tabs, a trailing comma; also as .json."""
    text = '{\n\t"num-layers": 2, # two\n\t"hidden-size": 32, "num-attention-heads": 2,\n'
    text += '\t"seq-length": 8, "max-position-embeddings": 8,\n\t"train-iters": 1,\n\t"train_batch_size": 4,\n}\n'
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    cfg = load_config("a.json", tmp_path)
    assert (cfg.num_layers, cfg.hidden_size, cfg.train_batch_size) == (2, 32, 4)
    assert cfg.source("hidden_size") == "a.json:3"


def test_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    """A file saved by a Windows editor is read as it is meant."""
    (tmp_path / "a.yml").write_bytes(b"\xef\xbb\xbf" + minimal_text().replace("\n", "\r\n").encode())
    assert load_config("a", tmp_path).num_layers == 4


def test_one_key_in_two_files(tmp_path: Path) -> None:
    """A key in two files, one of them with hyphens, is an error that names both files and lines."""
    _write(tmp_path, a=minimal_text(), b="seed: 1\nnum-layers: 6\n")
    with pytest.raises(ConfigError) as caught:
        load_config(["a", "b"], tmp_path)
    assert f"{tmp_path}/a.yml:1 (num_layers)" in caught.value.message
    assert f"{tmp_path}/b.yml:2 (num-layers)" in caught.value.message


@pytest.mark.parametrize("second", ["num_layers: 6", "num-layers: 6"])
def test_one_key_twice_in_a_file(second: str, tmp_path: Path) -> None:
    """A repeated key in one file, in either spelling, is an error with both lines; YAML would keep the last."""
    _write(tmp_path, a=minimal_text() + second + "\n")
    with pytest.raises(ConfigError, match=r"num_layers is given twice.*1"):
        load_config("a", tmp_path)


def test_one_key_twice_inside_a_block(tmp_path: Path) -> None:
    """The same inside a block, at any depth."""
    _write(tmp_path, a=minimal_text(optimizer=...) + "optimizer:\n  type: Adam\n  params:\n    lr: 1.0\n    lr: 2.0\n")
    with pytest.raises(ConfigError, match=r"a\.yml:\d+: lr is given twice; the first is on line \d+"):
        load_config("a", tmp_path)


@pytest.mark.parametrize(
    "twice",
    [
        "fp16: {enabled: true}\nfp16: {enabled: true}\n",
        "split: 969, 30, 1\n# 学習\nsplit: 969, 30, 1\n",
        "pos-emb: rotary\npos_emb: rotary\n",
        'valid-data-paths: ["語"]\nvalid-data-paths: ["語"]\ntrain_data_paths: [a]\ntest_data_paths: [b]\n',
    ],
)
def test_one_value_twice_in_a_file(twice: str, tmp_path: Path) -> None:
    """A line that stands there twice says nothing else, and GPT-NeoX takes it."""
    _write(tmp_path, a=minimal_text(), once=minimal_text() + "".join(dict.fromkeys(twice.splitlines(keepends=True))))
    _write(tmp_path, twice="# 設定\n" + minimal_text() + twice)
    assert load_config("twice", tmp_path).fp16 == load_config("once", tmp_path).fp16
    assert load_config("twice", tmp_path).valid_data_paths == load_config("once", tmp_path).valid_data_paths


@pytest.mark.parametrize("twice", ["use_wandb: true\nuse_wandb: 1\n", "lr-decay-iters: 1\nlr_decay_iters: 1.0\n"])
def test_equal_numbers_of_two_types_are_two_values(twice: str, tmp_path: Path) -> None:
    """True is no 1, and 1 no 1.0."""
    _write(tmp_path, a=minimal_text() + twice)
    with pytest.raises(ConfigError, match="is given twice"):
        load_config("a", tmp_path)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        # The published pythia-12b.yml, and files whose last line got a successor.
        ('{\n"a": [[1], 36]\n\n  # scaled\n"b": true,\n}\n', "put a comma at the end of line 2: '\"a\": [[1], 36]'"),
        ('{\n"a": true # a, b\n"b": 1\n}\n', "put a comma at the end of line 2: '\"a\": true'"),
        ('{\n"a": 1,\n"b”: 2,\n"c": 3\n}\n', "line 3 has '”', which is not a mark of YAML: write '\"' in its place"),
        ('{\n"a"：1,\n"b": 2}\n', "line 2 has '：', which is not a mark of YAML: write ':'"),
        ('{\n"a": 1、\n"b": 2 # 、\n}\n', "line 2 has '、', which is not a mark of YAML: write ','"),
        ('{\n// a\n"b": 2}\n', "line 2 has //, which begins no comment here: write #"),
        ("---\na: 1\n---\nb: 1\n", "a file holds one document"),
        ('{\n"a": "x #1",\n"b": 2]\n}\n', "look at this line and the one before"),
    ],
)
def test_missing_commas(text: str, hint: str, tmp_path: Path) -> None:
    """Nearly all files that cannot be read lack a comma: the line is named, which may stand some lines above."""
    _write(tmp_path, a=text)
    with pytest.raises(ConfigError) as caught:
        load_config("a", tmp_path)
    assert (caught.value.hint or "").startswith(hint)


def test_two_files_of_one_name(tmp_path: Path) -> None:
    """Both would be saved beside a checkpoint under one name."""
    (tmp_path / "x").mkdir()
    (tmp_path / "a.yml").write_text("seed: 1\n")
    (tmp_path / "x" / "a.yml").write_text("seed: 2\n")
    with pytest.raises(ConfigError, match=r"two configuration files are called a\.yml"):
        load_config(["a", "x/a"], tmp_path)


def test_missing_file_names_a_near_one(tmp_path: Path) -> None:
    """A misspelt file: its full name, and the file that was probably meant."""
    _write(tmp_path, local_setup="seed: 1\n")
    with pytest.raises(ConfigError, match=r"locl_setup\.yml: no such configuration file") as caught:
        load_config("locl_setup", tmp_path)
    assert caught.value.hint == "did you mean local_setup.yml?"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("125m", "125M.yml"),
        ("125M.yaml", "125M.yml"),
        ("pythia-14m", "pythia/pythia-14m.yml"),
        ("pythia/pythia-14M", "pythia/pythia-14m.yml"),
        ("2.7B", "2-7B.yml"),
    ],
)
def test_near_files_are_near_by_their_names(name: str, meant: str, tmp_path: Path) -> None:
    """Case, endings and a missing folder do not hide a file that is meant."""
    (tmp_path / "pythia").mkdir()
    _write(tmp_path, **{"125M": "a: 1", "2-7B": "a: 1", "pythia/pythia-14m": "a: 1"})
    with pytest.raises(ConfigError) as caught:
        load_config(name, tmp_path)
    assert (caught.value.hint or "").startswith(f"did you mean {meant}")


def test_unlike_files_are_listed(tmp_path: Path) -> None:
    """The ending that all files have makes no name like another."""
    _write(tmp_path, **{"1B": "a: 1", "7B": "a: 1"})
    with pytest.raises(ConfigError) as caught:
        load_config("日本.yml", tmp_path)
    assert caught.value.hint == "files there: 1B.yml, 7B.yml"


def test_shipped_files_are_not_said_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without -d the files of the current folder and those of neoxlite are listed, each as what they are."""
    monkeypatch.chdir(tmp_path)
    for own in ("", "files there: mine.yml; "):
        with pytest.raises(ConfigError) as caught:
            load_config("日本.yml")
        assert (caught.value.hint or "").startswith(f"{own}with neoxlite come 1-3B.yml, 125M.yml, ")
        _write(tmp_path, mine="a: 1")


def test_missing_folder(tmp_path: Path) -> None:
    """A misspelt -d: the folder is what is missing. GPT-NeoX's command line, outside its folder, needs none."""
    for name, more in (("mine", ""), ("125M", "; 125M.yml comes with neoxlite: omit -d")):
        with pytest.raises(ConfigError) as caught:
            load_config(name, tmp_path / "nowhere")
        assert caught.value.hint == f"the folder {tmp_path / 'nowhere'} does not exist{more}"


def test_own_file_comes_before_the_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without -d a name is looked up in the current folder, then among the files that come with neoxlite."""
    monkeypatch.chdir(tmp_path)
    assert find_file("125M").parent.name == "configs"
    (tmp_path / "125M.yml").write_text(minimal_text())
    assert find_file("125M") == Path("125M.yml")
    with pytest.raises(ConfigError):
        find_file("350M", tmp_path)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "{}\n", "null\n"])
def test_empty_file(text: str, tmp_path: Path) -> None:
    """A file without keys, alone, is refused by its name."""
    _write(tmp_path, a=text)
    with pytest.raises(ConfigError, match=r"a\.yml"):
        load_config("a", tmp_path)


def test_empty_file_beside_others_is_fine(tmp_path: Path) -> None:
    """An empty overlay changes nothing, and is kept among the files."""
    _write(tmp_path, a=minimal_text(), b="# later\n")
    assert load_config(["a", "b"], tmp_path).config_files["b.yml"] == "# later\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("seed: 1\nsave: 'x\n", 3),  # quote not closed
        ("seed: 1\n  save: x\n", 2),  # wrong indentation
        ('{"seed": 1\n"save": "x"}\n', 2),  # comma missing
        ("seed: 1\n\tsave: x\n", 2),  # tab for indentation
        ("seed: [1, 2\n", 2),  # bracket not closed
        ("seed: 1\nsave: *unknown\n", 2),  # alias without anchor
        ("seed: 1\nsave: !!python/object:os.system x\n", 2),  # a tag that asks for code
        ("seed: 1\n---\nseed: 2\n", 2),  # two documents
    ],
)
def test_damaged_yaml_names_the_line(text: str, line: int, tmp_path: Path) -> None:
    """Damaged files end in one message with file and line, never in a traceback of the parser."""
    _write(tmp_path, a=text)
    with pytest.raises(ConfigError) as caught:
        read_files(["a"], tmp_path)
    assert caught.value.message.startswith(f"{tmp_path}/a.yml:")
    found = int(caught.value.message.removeprefix(f"{tmp_path}/a.yml:").split(":")[0])
    assert found in (line - 1, line), "the parser may stop at the end of the line before"
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"seed: \xff\xfe\n", "byte 6 is not UTF-8"),
        (b"seed: 1\x00\n", "a.yml"),
        (b"seed: \x07\n", "a.yml"),
        (b"[1, 2]\n", "a.yml:1: the file is a sequence, not a mapping"),
        (b"seed\n", "a.yml:1: the file is a scalar, not a mapping"),
        (b"1: 2\n", "a.yml:1: a key that is not a text"),
        (b"true: 2\n", "a.yml:1: a key that is not a text"),
        (b"seed: 2026-13-45\n", "a.yml:1: seed: the value is not what YAML takes it for"),
        (b"seed: !!bool x\n", "a.yml:1: seed: the value is not what YAML takes it for"),
        (b"seed: !!timestamp x\n", "a.yml:1: seed: the value is not what YAML takes it for"),
        (b"seed: !!int\n", "a.yml:1: seed: the value is not what YAML takes it for"),
        (b"optimizer: {params: {lr: !!float _}}\n", "a.yml:1: optimizer: the value is not what YAML takes it for"),
        (b"seed: " + b"9" * 5000, "a.yml:1: seed: "),
        (b"seed: 0x" + b"f" * 5000, "a.yml:1: seed must be a whole number, not a number beyond"),
        (b'"a\\nb": 1\n', "a.yml:1: 'a\\nb' is not a GPT-NeoX key"),
        (b"x" * 500 + b": 1\n", "xxx... is not a GPT-NeoX key"),
        (b"[a]: 2\n", "a.yml"),
        (b"? {a: b}\n: 2\n", "a.yml"),
        (b"&a seed: *a\n", "a.yml"),
        (b"a: &x [*x]\n", "a.yml"),
        (_ALIASES_OF_ALIASES, "a.yml: more than 100,000 values"),
        (b"[" * 100_000, "a.yml"),
        (b"{a: " * 5_000, "a.yml"),
    ],
)
def test_hostile_bytes(data: bytes, words: str, tmp_path: Path) -> None:
    """Bytes that are no configuration: one message naming the file."""
    (tmp_path / "a.yml").write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load_config("a", tmp_path)
    assert words in caught.value.message


def test_folder_for_a_file(tmp_path: Path) -> None:
    """A folder called a.yml is not a file."""
    (tmp_path / "a.yml").mkdir()
    with pytest.raises(ConfigError, match="a folder, not a configuration file"):
        load_config("a", tmp_path)


def test_no_files() -> None:
    """An empty list of files is refused before anything is read."""
    with pytest.raises(ConfigError, match="no configuration file is given"):
        load_config([])


def test_yaml_merge_keys(tmp_path: Path) -> None:
    """YAML's own ``<<`` and anchors work, as they do under PyYAML in GPT-NeoX."""
    text = "fp16: &b {enabled: false}\nbf16:\n  <<: *b\n  other: 1\n"
    _write(tmp_path, a=minimal_text() + text)
    assert load_config("a", tmp_path).bf16 == {"enabled": False, "other": 1}


def test_unknown_keys_are_counted(load: Load) -> None:
    """The first unknown key with its line and near names; the others by name."""
    with pytest.raises(ConfigError) as caught:
        load(**{"hiden-size": 3, "zzz": 1})
    assert caught.value.message.endswith("small.yml:15: hiden-size is not a GPT-NeoX key (and 1 more: zzz)")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("did you mean hidden_size")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (os.mkfifo, "a pipe or a device, not a configuration file"),
        (lambda path: path.symlink_to(path), "a link to nothing, or to itself"),
        (lambda path: path.symlink_to("gone.yml"), "a link to nothing, or to itself"),
        (Path.mkdir, "a folder, not a configuration file"),
    ],
)
def test_what_is_no_file_is_told_as_what_it_is(make: Callable[[Path], None], told: str, tmp_path: Path) -> None:
    """Not as missing with its own name for a near one; and it is not offered for another name."""
    path = tmp_path / "run.yml"
    make(path)
    (tmp_path / "rum.yml").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config("run", tmp_path)
    assert caught.value.message == f"{path}: {told}"
    with pytest.raises(ConfigError) as caught:
        load_config("ruu", tmp_path)
    assert caught.value.hint == "did you mean rum.yml?"
