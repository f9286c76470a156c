"""The command lines of GPT-NeoX's users: those of its README, and each option of deepy.py at ea7aefd8."""

from __future__ import annotations

import pytest

from neoxlite.errors import ConfigError
from neoxlite.launch.deepy import main, translate

TRAIN = ["launch", "--command", "train"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "train.py -d configs 125M.yml local_setup.yml",
            [*TRAIN, "-d", "configs", "--", "125M.yml", "local_setup.yml"],
        ),
        ("train.py configs/a.yml configs/b.yml", [*TRAIN, "--", "configs/a.yml", "configs/b.yml"]),
        ("-d configs train.py 125M local", [*TRAIN, "-d", "configs", "--", "125M", "local"]),
        ("train.py 125M -d configs local", [*TRAIN, "-d", "configs", "--", "125M", "local"]),
        ("./train.py --conf_dir=c -H hosts a.yml", [*TRAIN, "-d", "c", "--hostfile", "hosts", "--", "a.yml"]),
        ("train.py a.yml --hostfile hosts", [*TRAIN, "--hostfile", "hosts", "--", "a.yml"]),
        ("train.py a.yml --iteration 100", [*TRAIN, "--iteration", "100", "--", "a.yml"]),
        ("train.py a.yml --wandb_group g", [*TRAIN, "--set", 'wandb_group="g"', "--", "a.yml"]),
        ("pretrain_gpt2.py -d configs small.yml", [*TRAIN, "-d", "configs", "--", "small.yml"]),
        ("text_gen_gpt2.py -d configs small.yml", ["generate", "-d", "configs", "--", "small.yml"]),
        ("eval.py -d c a.yml", ["launch", "--command", "evaluate", "-d", "c", "--", "a.yml"]),
        (
            "generate.py a.yml -i in.txt -o 出.txt",
            ["generate", "--set", 'sample_input_file="in.txt"', "--set", 'sample_output_file="出.txt"', "--", "a.yml"],
        ),
    ],
)
def test_lines_of_users(line: str, expected: list[str]) -> None:
    """Options stand before, between and behind the files."""
    assert translate(line.split()) == expected


def test_a_key_as_an_option_is_told_where_keys_stand() -> None:
    """GPT-NeoX's own deepy.py refuses them too."""
    with pytest.raises(ConfigError, match="unrecognized arguments: --lr 1e-4") as caught:
        translate(["train.py", "a.yml", "--lr", "1e-4"])
    assert "--set KEY=VALUE" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "user_script"),
        ("train.py", "conf_file"),
        ("train.py a.yml --conf d", "--conf"),
        ("finetune.py a.yml", "finetune.py is not replaced"),
        ("eval.py a.yml --eval_tasks lambada piqa", "--eval_tasks is not supported"),
        ("train.py a.yml --autotuning tune", "--autotuning is not supported"),
        ("train.py a.yml --iteration x", "--iteration"),
    ],
)
def test_what_is_refused(line: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a traceback, with code 2, and with what to do."""
    with pytest.raises(ConfigError) as caught:
        translate(line.split())
    assert told in caught.value.message
    assert caught.value.hint
    assert main(line.split()) == 2
    assert told in capsys.readouterr().err
