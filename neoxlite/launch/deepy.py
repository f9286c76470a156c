"""GPT-NeoX's command line: ``deepy.py train.py -d configs 125M.yml local_setup.yml``.

Options as at ea7aefd8 (megatron/neox_arguments/arguments.py). The script names what to do and need not exist.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Final, NoReturn

from neoxlite.errors import ConfigError

_COMMANDS: Final = {
    "train": "train",
    "pretrain_gpt2": "train",  # until v2.0, and so text_gen_gpt2
    "eval": "evaluate",
    "evaluate": "evaluate",
    "generate": "generate",
    "text_gen_gpt2": "generate",
}
# Options that set a key of the configuration of the same name.
_KEYS: Final = ("wandb_group", "wandb_run_name", "wandb_team", "sample_input_file", "sample_output_file")
_REFUSED: Final = {
    "eval_tasks": "neoxlite evaluate gives the loss on the validation and test data; for tasks export the model",
    "eval_results_prefix": "redirect the output of neoxlite evaluate --json",
    "autotuning": "omit it: neoxlite has no autotuner",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        hint = "use: deepy.py train.py [-d DIR] [-H HOSTFILE] CONFIG.yml..."
        if message.startswith("unrecognized arguments"):
            hint = (
                "keys of the configuration stand in a file here; neoxlite launch --set KEY=VALUE takes them one by one"
            )
        raise ConfigError(f"deepy: {message}", hint=hint)


def translate(argv: Sequence[str]) -> list[str]:
    """Return the command line of neoxlite for one of deepy.py.

    Raises:
        ConfigError: an option is unknown or has no counterpart, or the script is none that neoxlite replaces.
    """
    given = _parser().parse_intermixed_args(list(argv))
    script = PurePath(given.user_script).name
    command = _COMMANDS.get(script.removesuffix(".py"))
    if command is None:
        raise ConfigError(
            f"deepy: {given.user_script} is not replaced by neoxlite",
            hint="train.py, eval.py and generate.py are; start other scripts with GPT-NeoX",
        )
    for option, instead in _REFUSED.items():
        if getattr(given, option):
            raise ConfigError(f"deepy: --{option} is not supported by neoxlite", hint=instead)
    own: list[str] = [command] if command == "generate" else ["launch", "--command", command]
    if given.conf_dir is not None:
        own += ["-d", given.conf_dir]
    if given.hostfile is not None and command != "generate":
        own += ["--hostfile", given.hostfile]
    if given.iteration is not None:
        own += ["--iteration", str(given.iteration)]
    own += [word for key in _KEYS if (value := getattr(given, key)) is not None for word in ("--set", _set(key, value))]
    return [*own, "--", *given.conf_file]


def _set(key: str, value: Any) -> str:
    return f"{key}={json.dumps(value, ensure_ascii=False)}"


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="deepy.py", allow_abbrev=False, description="Start neoxlite as GPT-NeoX's deepy.py starts it."
    )
    parser.add_argument("user_script", help="train.py, eval.py or generate.py")
    parser.add_argument("conf_file", nargs="+", help="configuration files")
    parser.add_argument("-d", "--conf_dir", help="folder of the configuration files")
    parser.add_argument("-H", "--hostfile", help="hosts and their slots")
    parser.add_argument("--iteration", type=int, help="load this iteration")
    parser.add_argument("-i", "--sample_input_file", help="prompts of generate.py")
    parser.add_argument("-o", "--sample_output_file", help="output of generate.py")
    for name in ("wandb_group", "wandb_run_name", "wandb_team", "eval_results_prefix", "autotuning"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--eval_tasks", nargs="+")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line of deepy.py with neoxlite, and return its exit code."""
    import sys

    from neoxlite.cli import main as neoxlite
    from neoxlite.common import streams
    from neoxlite.common.errors import UserError

    if argv is None:
        streams.prepare()
    words = list(sys.argv[1:] if argv is None else argv)
    debug = [word for word in words if word == "--debug"]
    try:
        translated = translate([word for word in words if word != "--debug"])
    except UserError as error:
        print(f"deepy.py: {error.message}\n          {error.hint}", file=sys.stderr)
        return error.exit_code
    return neoxlite([*debug, *translated])
