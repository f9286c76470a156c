"""``hpcjob completion``: the script that teaches a shell to complete hpcjob's commands, jobs and profiles."""

from __future__ import annotations

import click

_WHERE = {
    "bash": 'eval "$(hpcjob completion bash)"     in ~/.bashrc',
    "zsh": 'eval "$(hpcjob completion zsh)"      in ~/.zshrc, after compinit',
    "fish": "hpcjob completion fish > ~/.config/fish/completions/hpcjob.fish",
}


@click.command(epilog="\n  ".join(["\b\nExamples:", *_WHERE.values()]))
@click.argument("shell", type=click.Choice(list(_WHERE)))
def completion(shell: str) -> None:
    """Print the script that teaches a shell to complete commands, jobs, profiles and job files."""
    from click.shell_completion import get_completion_class

    from hpcjob.cli.group import cli

    kind = get_completion_class(shell)
    assert kind is not None, shell
    print(kind(cli, {}, "hpcjob", "_HPCJOB_COMPLETE").source())
