"""What comes from the key table: ``neoxlite config keys``, the documentation, and the JSON Schema."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from neoxlite.cli import main
from neoxlite.config import ConfigError, key_table
from neoxlite.config.keys import old_key_table
from neoxlite.config.ranges import Range
from neoxlite.config.reference import find_keys, renewed
from neoxlite.config.schema import json_schema
from tests.neoxlite.config.samples import Load, golden

_PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def _keys(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["config", "keys", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_documentation_is_current() -> None:
    """docs/configuration.md is what `neoxlite config keys --markdown docs/configuration.md` makes of it."""
    page = _PAGE.read_text(encoding="utf-8")
    assert renewed(page) == page
    assert all(f"\n| `{name}` |" in page for name in (*key_table(), *old_key_table()))


def test_documentation_is_renewed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row changed by hand is put right, the text around the tables stays; a page without marks is refused."""
    page = _PAGE.read_text(encoding="utf-8")
    path = tmp_path / "page.md"
    path.write_text(page.replace("| `rotary_pct` |", "| `rotary_percent` |"), encoding="utf-8")
    assert _keys(capsys, "--markdown", str(path))[0] == 0
    assert path.read_text(encoding="utf-8") == page
    path.write_text("# nothing\n", encoding="utf-8")
    code, _, error = _keys(capsys, "--markdown", str(path))
    assert (code, "no place for the tables" in error) == (2, True)


def test_columns_of_the_terminal_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    """Each meaning begins in one column, below where the key's standing is too long for its own."""
    _, out, _ = _keys(capsys, "rotary")
    meanings = ("share of each head", "rotary theta", "keep inv_freq", "the matrix of queries")
    assert len({line.index(text) for text in meanings for line in out.splitlines() if text in line}) == 1
    assert _keys(capsys, "rotary", "--tier", "exotic") == (0, "", "")


def test_every_row_of_a_table_has_all_its_cells() -> None:
    """A bar inside a cell is escaped: each row has as many cells as its head."""
    cells = 0
    for line in _PAGE.read_text(encoding="utf-8").splitlines():
        bars = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        if not cells or not bars:
            cells = bars
        assert bars == cells, line


@pytest.mark.parametrize(
    ("pattern", "some", "without"),
    [
        ("rotary", "rotary_pct", "num_layers"),
        ("num-layers", "num_layers", "hidden_size"),
        ("optimizer.*", "optimizer.params.lr", "optimizer_type"),
        ("save_i*", "save_interval", "save"),
        (None, "moe_top_k", "nothing"),
    ],
)
def test_find_keys(pattern: str | None, some: str, without: str) -> None:
    """A part of a name, hyphens, patterns, keys inside blocks and of earlier releases; or all."""
    names = [key.name for key in find_keys(pattern)]
    assert some in names
    assert without not in names


def test_keys_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    """One line a key: type and default, tier and what is done with it, meaning."""
    code, out, _ = _keys(capsys, "rotary_pct")
    assert (code, out.split("  ")) == (
        0,
        ["rotary_pct", "float, from 0 to 1 = 1.0", "core, used", "share of each head that is rotated\n"],
    )
    _, out, _ = _keys(capsys, "save_interval")
    assert "removed 2022-12  taken as checkpoint_factor" in out


def test_keys_of_a_tier_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """For programs, and only what was asked for."""
    _, out, _ = _keys(capsys, "--tier", "useful", "--tier", "exotic", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert {row["tier"] for row in rows.values()} == {"useful", "exotic"}
    assert rows["z_loss"]["support"] == "refused"
    assert rows["z_loss"]["instead"] == "set z_loss: 0"
    assert rows["expansion_factor"]["range"] == {"exclusiveMinimum": 0, "maximum": 1000}


def test_keys_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt name, or part of names: what was probably meant."""
    code, out, err = _keys(capsys, "num_layrs")
    assert (code, out) == (2, "")
    assert err.splitlines() == ["neoxlite: no key is like num_layrs", "          did you mean num_layers?"]
    code, out, err = _keys(capsys, "rotray")
    assert (code, out) == (2, "")
    assert "did you mean rotary_pct, rotary_emb_base, " in err
    assert _keys(capsys, "qqqqqqqq")[2].splitlines()[1:] == ["          try a part of the name"]


@pytest.mark.parametrize(("name", "meant"), [("save_intervall", "checkpoint_factor"), ("weigt-decay", "weight_decay")])
def test_near_names(name: str, meant: str, load: Load) -> None:
    """Hyphens are no difference, and a misspelt old key leads to today's."""
    with pytest.raises(ConfigError, match="is not a GPT-NeoX key") as caught:
        load(**{name: 1})
    assert (caught.value.hint or "").startswith(f"did you mean {meant}")


@pytest.mark.parametrize(
    ("text", "inside", "outside", "words"),
    [
        ("[1,inf)", [1, 2**60], [0.99], "at least 1"),
        ("(0,inf)", [1e-30], [0, -1], "greater than 0"),
        ("[0,1)", [0, 0.999], [1, -0.1], "at least 0 and less than 1"),
        ("[0,1]", [0, 1], [1.001], "from 0 to 1"),
        ("(0,1000]", [1e-9, 1000], [0, 1000.5], "greater than 0 and at most 1,000"),
    ],
)
def test_ranges(text: str, inside: list[float], outside: list[float], words: str) -> None:
    """The usual notation of intervals."""
    limits = Range.parse(text)
    assert all(number in limits for number in inside)
    assert not any(number in limits for number in outside)
    assert limits.words == words


@pytest.mark.parametrize("text", ["", "0..1", "[0,1", "[a,b]"])
def test_what_is_no_range(text: str) -> None:
    """A slip in the table is found when it is read."""
    with pytest.raises(ValueError, match=r"."):
        Range.parse(text)


def test_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """`neoxlite config schema` prints the schema and nothing else."""
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


def test_schema_says_what_the_table_says() -> None:
    """Types, choices, ranges, blocks, old keys and hyphens, as an editor wants them."""
    schema = json_schema()
    keys = schema["properties"]
    assert keys.keys() == key_table().keys() | old_key_table().keys()
    assert keys["num_layers"]["type"] == ["integer", "null"]
    assert (keys["num_layers"]["minimum"], keys["num_layers"]["maximum"]) == (1, 10_000)
    assert keys["pos_emb"]["enum"] == ["learned", "rotary", "sinusoidal", "rpe", "alibi", "none", None]
    assert keys["weight_decay"]["anyOf"][0] == {"type": ["number", "null"], "minimum": 0}
    assert re.fullmatch(keys["min_lr"]["anyOf"][1]["pattern"], "1e-5")
    assert keys["save_interval"]["deprecated"] is True
    params = keys["optimizer"]["properties"]["params"]
    assert params["properties"]["eps"]["anyOf"][0]["exclusiveMinimum"] == 0
    assert keys["zero_optimization"]["properties"]["stage"]["maximum"] == 3
    assert schema["patternProperties"]["^num-layers$"] == {"$ref": "#/properties/num_layers"}
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("name", sorted(golden("config/resolved.json")["shipped_values"]))
def test_schema_holds_for_gpt_neox_files(name: str) -> None:
    """GPT-NeoX's own files, read with PyYAML, have no key and no type that the schema would mark."""
    schema = json_schema()
    for key, value in golden("config/resolved.json")["shipped_values"][name].items():
        if key in ("decay_lr_to", "warmup_iters"):
            continue  # of llemma/7B: never keys, refused by GPT-NeoX too
        own = schema["properties"].get(key) or schema["patternProperties"][f"^{key}$"]
        if "$ref" in own:
            own = schema["properties"][own["$ref"].removeprefix("#/properties/")]
        assert _fits(own, value), (key, value)


def _fits(schema: dict[str, Any], value: Any) -> bool:
    """Check the few words of JSON Schema that ours uses, but for limits."""
    types = {"integer": int, "number": (int, float), "boolean": bool, "string": str, "array": list, "object": dict}
    if "anyOf" in schema:
        return any(_fits(choice, value) for choice in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    if "pattern" in schema:
        return isinstance(value, str) and re.search(schema["pattern"], value) is not None
    if "type" not in schema or value is None:
        return True
    names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, types[name]) for name in names if name != "null") and all(
        _fits(inner, value[name]) for name, inner in schema.get("properties", {}).items() if name in value
    )
