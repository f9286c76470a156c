"""YAML documents: what is read, and how mistakes are told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hpcjob.documents.checking import convert
from hpcjob.documents.document import Document, merge
from hpcjob.documents.reading import parse, parse_value, read
from hpcjob.errors import InputError
from hpcjob.job import JobFile


def set_text(document: Document, path: str, text: str, place: str) -> None:
    """Set a key to the YAML value that ``text`` spells."""
    value, texts = parse_value(text, place)
    document.set(path, value, place, texts)


def refused(text: str) -> InputError:
    """Return the error with which ``text``, as a job file x.yml, is refused."""
    with pytest.raises(InputError) as error:
        convert(parse(text, "x.yml", "job file"), JobFile, "job file")
    return error.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2:12:00:00", "2:12:00:00"),  # YAML 1.1: 475200
        ("1:00:00", "1:00:00"),  # YAML 1.1: 3600
        ("010", "010"),  # YAML 1.1: 8
        ("0777", "0777"),
        ("1_000", "1_000"),  # YAML 1.1: 1000
        ("yes", "yes"),  # YAML 1.1: true
        ("no", "no"),
        ("off", "off"),
        ("2024-10-31", "2024-10-31"),  # YAML 1.1: a date
        ("6e-5", 6e-5),  # YAML 1.1: text
        ("1.6e-4", 1.6e-4),
        ("0x10", 16),
        ("-3", -3),
        ("0", 0),
        (".5", 0.5),
        ("true", True),
        ("~", None),
        ("", None),
        ("=", "="),
        ("名前", "名前"),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: Any) -> None:
    """YAML 1.1's clock numbers, octals, dates and yes/no stay text; exponents without a point are numbers."""
    found = parse(f"key: {text}", "x.yml", "job file").data["key"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("key", ["on", "off", "yes", "n"])
def test_keys_that_yaml_1_1_takes_for_booleans(key: str) -> None:
    """``on:`` is the key "on"."""
    assert parse(f"{key}: 1", "x.yml", "job file").data == {key: 1}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("nodes: 1\nname: a\nnodes: 2", "x.yml:3: nodes stands twice, first on line 1", "remove one"),
        ("env:\n  A: 1\n  A: 2", "x.yml:3: env.A stands twice, first on line 2", "remove one"),
        ("steps:\n- name: a\n  name: b", "x.yml:3: steps[0].name stands twice, first on line 2", "remove one"),
        ("nodes: 1\nenv:\n\tA: 1", "x.yml:3: found character that cannot start any token", "spaces, not tabs"),
        ("name: a: b", "x.yml:1: mapping values are not allowed in this context", "quote a value"),
        ("name: [a", "x.yml:2: did not find expected", "close the bracket"),
        ("command: python a.py 'b c'", "x.yml:1: command: expected a list, got", 'command: ["python", "a.py", "b c"]'),
        ("name: *nowhere", "x.yml:1: found undefined alias", "begins with *"),
        ("name: !!python/name:os.system ''", "x.yml:1: could not determine a constructor", "tags (!name) are not read"),
        ("1: a", "x.yml:1: 1: a key must be text", 'quote it: "1"'),
        ("true: a", "x.yml:1: true: a key must be text", 'quote it: "true"'),
        ("? [a, b]\n: c", "x.yml:1: a list or mapping: a key must be text", "write `key: value`"),
        ("- a\n- b", "x.yml: the job file is not a mapping of keys to values", "write `key: value` lines"),
        ("just words", "x.yml: the job file is not a mapping of keys to values", "write `key: value` lines"),
        ("a: 1\n---\nb: 2", "x.yml:2: but found another document", "must be YAML"),
        ("a: &a [*a]", "x.yml: nested too deeply", "alias"),
        ("node: 1", "x.yml:1: job file has no key 'node'", "did you mean nodes or nodelist?"),
        ("name: a\ntrain:\n  config: [a]\n", "x.yml:3: job file has no key 'train.config'", "did you mean configs?"),
        ("frobnicate: 1", "x.yml:1: job file has no key 'frobnicate'", "known keys: account, "),
        ("nodes: two", "x.yml:1: nodes: expected a whole number, got 'two'", "hpcjob schema job"),
        ("nodes: 010", "x.yml:1: nodes: expected a whole number, got '010'", "hpcjob schema job"),
        ("nodes: 0", "x.yml:1: nodes: expected a whole number >= 1, got 0", "hpcjob schema job"),
        ("nodes: 1.5", "x.yml:1: nodes: expected a whole number, got 1.5", "hpcjob schema job"),
        ("nodes: yes", "x.yml:1: nodes: expected a whole number, got 'yes'", "hpcjob schema job"),
        ("schema: 2", "x.yml:1: schema: 2 is not 1", "a later one needs a later hpcjob"),
        ("kind: gpu", "x.yml:1: kind: 'gpu' is not one of cpu, setup, train, transfer", "hpcjob schema job"),
        ("mail: [start]", "x.yml:1: mail[0]: 'start' is not one of begin, end, fail", "hpcjob schema job"),
        ("name:\n- a", "x.yml:1: name: expected text, got a list", "hpcjob schema job"),
        ("command: []", "x.yml:1: command: expected a list that is not empty", "hpcjob schema job"),
        ("command:\n- a\n- 1", "x.yml:3: command[1]: expected text, got 1", 'put it in quotes: "1"'),
        ("params: {a b: 1}", "x.yml:1: params: expected a name of letters, digits and _, no", "hpcjob schema job"),
        ("steps:\n- command: [a]", "x.yml:2: steps[0]: `name` is missing", "hpcjob schema job"),
    ],
)
def test_mistakes_are_told_with_place_and_remedy(text: str, message: str, hint: str) -> None:
    """File, line and key of the mistake come first, then what to do."""
    error = refused(text)
    assert error.message.startswith(message)
    assert hint in (error.hint or "")
    assert error.exit_code == 2


def test_aliases_of_aliases_do_not_fill_the_memory() -> None:
    """A small text that unfolds to 10^9 values is refused instead of unfolded."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "more than 50000 values" in refused("\n".join(lines)).message


def test_deep_nesting_is_refused() -> None:
    """Ten thousand brackets end in an error, not in a crash."""
    assert refused("a: " + "[" * 10_000 + "]" * 10_000).message.startswith("x.yml:1: exceeded maximum nesting depth")


def test_a_plain_alias_is_fine() -> None:
    """One alias and a merge key do what YAML says."""
    document = parse("a: &a {x: 1}\nb: {<<: *a, y: 2}", "x.yml", "job file")
    assert document.data["b"] == {"x": 1, "y": 2}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing (with near names), Shift-JIS, binary, huge and unreadable files each get a line of their own."""
    (tmp_path / "quickstart.yml").write_text("name: a")
    (tmp_path / "sjis.yml").write_bytes("name: 実験".encode("shift_jis"))
    (tmp_path / "binary.yml").write_bytes(b"name: \x00\x01")
    (tmp_path / "huge.yml").write_bytes(b"#" * 1_000_001)
    for name, message, hint in [
        ("quikstart.yml", "no such job file", "near it: quickstart.yml"),
        ("sjis.yml", "byte 6 is not UTF-8", "iconv -f SHIFT_JIS"),
        ("binary.yml", "control characters are not allowed", "text file"),
        ("huge.yml", "more than 1000000 bytes, too large for a job file", "right file"),
        ("no/such/folder.yml", "no such job file", "does not exist either"),
        ("", "Is a directory", "can be read"),
    ]:
        with pytest.raises(InputError) as error:
            read(tmp_path / name, "job file")
        assert message in error.value.message, name
        assert hint in (error.value.hint or ""), name


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    """A device without an end and a pipe nobody writes into are refused, not waited for."""
    os.mkfifo(tmp_path / "pipe.yml")
    for path in (Path("/dev/zero"), tmp_path / "pipe.yml"):
        with pytest.raises(InputError, match="no regular file"):
            read(path, "job file")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("!!bool abc", "'abc' is not of type bool"),
        ('!!int ""', "'' is not of type int"),
        ("!!int 0o17", "'0o17' is not of type int"),
        ("!!float x", "'x' is not of type float"),
        ("!!null abc", "'abc' is not of type null"),
        ("!!timestamp abc", "could not determine a constructor"),
        ("!!binary '*'", "could not determine a constructor"),
        ("!!int [1]", "expected a scalar node"),
        ("0x" + "f" * 4000, "a number of 4002 digits"),
        ("9" * 5000, "a number of 5000 digits"),
    ],
)
def test_values_that_are_none_are_refused_with_their_line(value: str, message: str) -> None:
    """A tag must fit its text, and a number be one that can be shown; in a variable too."""
    for text in (f"name: a\nnodes: {value}\n", f"name: a\nenv: {{A: {value}}}\n"):
        with pytest.raises(InputError) as error:
            convert(parse(text, "x.yml", "job file"), JobFile, "job file")
        assert error.value.message.startswith("x.yml:2: ")
        assert message in error.value.message


def test_tags_that_fit_are_read() -> None:
    """Whoever writes the tags of the core schema may do so."""
    document = parse("{a: !!int 5, b: !!float 1, c: !!str 5, d: !!bool true, e: !!null ~}", "x", "job file")
    assert document.data == {"a": 5, "b": 1.0, "c": "5", "d": True, "e": None}


@pytest.mark.parametrize("value", ["1e400", "9" * 300])
def test_numbers_beyond_the_fields_are_refused(value: str) -> None:
    """As a number of nodes, and as a memory of a profile: a line, no traceback."""
    with pytest.raises(InputError, match=r"x.yml:1: nodes: "):
        convert(parse(f"nodes: {value}", "x.yml", "job file"), JobFile, "job file")


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    """Files saved on Windows, in a Japanese folder, are read as they look."""
    path = tmp_path / "実験 1.yml"
    path.write_bytes("\ufeffname: 実験\r\nnodes: 2\r\n".encode())
    document = read(path, "job file")
    assert document.data == {"name": "実験", "nodes": 2}
    assert document.place(("nodes",)) == f"{path}:2"


def test_values_from_options_carry_the_options_name() -> None:
    """A value set over the file is told by its option, the others by their line."""
    document = parse("name: a\nnodes: 1\ntrain:\n  configs: [a]\n", "x.yml", "job file")
    document.set("nodes", 0, "--nodes")
    set_text(document, "train.set.train_iters", "10", "--set train.set.train_iters")
    set_text(document, "train.configs", "[b.yml, c.yml]", "--set train.configs")
    set_text(document, "train.configs.1", "d.yml", "--set train.configs.1")
    assert document.data["train"] == {"configs": ["b.yml", "d.yml"], "set": {"train_iters": 10}}
    assert document.place(("nodes",)) == "--nodes"
    assert document.place(("train", "configs", 1)) == "--set train.configs.1"
    assert document.place(("name",)) == "x.yml:1"
    with pytest.raises(InputError, match=r"--nodes: expected a whole number >= 1, got 0"):
        convert(document, JobFile, "job file")


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("name.x", "1", "--set: name is 'a', it holds no key 'x'"),
        ("steps.1.name", "b", "--set: steps is [{'name': 's'}], it holds no key '1'"),
        ("steps.first", "b", "--set: steps is [{'name': 's'}], it holds no key 'first'"),
        ("a..b", "1", "--set: 'a..b' is not a path of keys"),
        ("name", "a: b", "--set: mapping values are not allowed in this context"),
        ("name", "[a", "--set: did not find expected"),
    ],
)
def test_overrides_that_lead_nowhere(path: str, text: str, message: str) -> None:
    """A path through a value that is no mapping, or text that is no YAML, is refused in the option's name."""
    document = parse("name: a\nsteps: [{name: s}]\n", "x.yml", "job file")
    with pytest.raises(InputError) as error:
        set_text(document, path, text, "--set")
    assert error.value.message.startswith(message)
    assert document.data == {"name": "a", "steps": [{"name": "s"}]}


def test_text_as_written_is_kept_where_it_is_asked() -> None:
    """Numbers and booleans of a variable keep their spelling: 1.10, 1e3 and TRUE are not rewritten."""
    document = parse("env: {A: 1.10, B: 1e3, C: TRUE, D: 0x10, E: '1', F: , G: 007}", "x.yml", "job file")
    document.keep_text(("env",))
    assert document.data["env"] == {"A": "1.10", "B": "1e3", "C": "TRUE", "D": "0x10", "E": "1", "F": "", "G": "007"}


def test_merging_keeps_both_files_places() -> None:
    """Mappings are merged, lists replaced, and each value is told by the file that gave it."""
    base = parse("node: {gpus: 4, cores: 8}\nmodules: {load: [a, b]}\n", "base.yml", "profile")
    over = parse("node: {gpus: 8}\nmodules: {load: [c]}\n", "over.yml", "profile")
    merged = merge(base, over)
    assert merged.data == {"node": {"gpus": 8, "cores": 8}, "modules": {"load": ["c"]}}
    assert merged.place(("node", "gpus")) == "over.yml:1"
    assert merged.place(("node", "cores")) == "base.yml:1"
    assert base.data["node"]["gpus"] == 4
