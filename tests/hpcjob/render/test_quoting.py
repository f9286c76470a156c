"""The two quoting rules: words of bash, and values of directives."""

from __future__ import annotations

import subprocess

import pytest

from hpcjob import quoting
from hpcjob.errors import InputError
from hpcjob.profile import SchedulerName
from hpcjob.quoting import ScriptText
from hpcjob.schedulers.directives import directive


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("plain/path-1.2_3:4,5=6@7%8+9", "plain/path-1.2_3:4,5=6@7%8+9"),
        ("two words", "'two words'"),
        ("", "''"),
        ("データ", "'データ'"),
        ("it's", r"$'it\'s'"),
        ("$HOME", "$'$HOME'"),
        ("a\n\tb\\", r"$'a\n\tb\\'"),
        (7, "7"),
    ],
)
def test_words_of_bash(value: str | int, word: str) -> None:
    """Plain words stay readable; the rest is quoted so that bash gives back the very text."""
    quoted = quoting.sh(value, "key")
    assert quoted == word
    printed = subprocess.run(["bash", "-c", f"printf %s {quoted}"], capture_output=True, text=True, check=True).stdout
    assert printed == str(value)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("~/venv", '"$HOME"/venv'),
        ("~/it's $X", """"$HOME"/$'it\\'s $X'"""),
        ("~/", """"$HOME"/''"""),
        ("data/~/x", "'data/~/x'"),
        ("~", "'~'"),
        ("~root/x", "'~root/x'"),
        (ScriptText('"$x"'), '"$x"'),
    ],
)
def test_paths_below_the_home_folder(value: str, word: str) -> None:
    """The home is that of who runs the job, on the node; nothing else of a path is looked at."""
    assert quoting.sh_path(value, "key") == word


def test_a_quoted_word_stays_as_it_is() -> None:
    """Nothing is quoted twice."""
    assert quoting.sh(ScriptText('"$jobdir"'), "key") == '"$jobdir"'
    assert quoting.sh_words(["a b", ScriptText("%n")], "key") == "'a b' %n"


def test_a_value_too_long_for_a_program_is_refused() -> None:
    """Linux takes 131,071 bytes in one argument or variable: a longer one would fail in the job."""
    assert len(quoting.sh("x" * 131_071, "env.A")) == 131_071
    with pytest.raises(InputError, match=r"^env.A: 131073 bytes"):
        quoting.sh("語" * 43_691, "env.A")


def test_comments_cannot_end_their_line() -> None:
    """A line feed, another separator or a change of direction in a comment becomes a question mark."""
    assert quoting.comment("a\nb\u2028c\u202ed\x1be\ud800") == "a?b?c?d?e?"
    assert quoting.comment("学習 $(x) 'y'") == "学習 $(x) 'y'"


@pytest.mark.parametrize(
    ("scheduler", "key", "value", "line"),
    [
        ("slurm", "name", "学習 1", '"学習 1"'),
        ("slurm", "name", "gpt-2.7B", "gpt-2.7B"),
        ("slurm", "name", "a#b", '"a#b"'),
        ("slurm", "queue", "gpu,debug", "gpu,debug"),
        ("slurm", "exclude", "node[1-3,7],x", "node[1-3,7],x"),
        ("slurm", "jobdir", "/w/100% it's", '"/w/100%% it\'s"'),
        ("pbs", "name", "1abc+x", "1abc+x"),
        ("pbs", "select", "2:ncpus=96:mpiprocs=8", "2:ncpus=96:mpiprocs=8"),
        ("pbs", "jobdir", "/w/a b", '"/w/a b"'),
        ("gridengine", "name", "a" * 200, "a" * 200),
        ("pjm", "name", "a" * 63, "a" * 63),
        ("local", "name", 'it\'s "学習" $1', 'it\'s "学習" $1'),
        ("slurm", "name", "it's a\\b", '"it_s a_b"'),
        ("pbs", "name", "学習 abc", "___abc"),
        ("pbs", "name", "日本語の実験", "job-de1b6d34"),  # printf %s NAME | sha256sum
        ("gridengine", "name", "学習 a:b", "job-0b4ac9e5"),
        ("pbs", "name", "-x", "j-x"),
        ("gridengine", "name", "1a@b", "j1a_b"),
        ("pjm", "name", "a+" + "b" * 70, "a_" + "b" * 61),
    ],
)
def test_directives_that_fit(scheduler: SchedulerName, key: str, value: str, line: str) -> None:
    """What a scheduler's manual allows is taken as it is, or quoted as that scheduler reads it."""
    assert directive(scheduler, value, key) == line


@pytest.mark.parametrize(
    ("scheduler", "key", "value"),
    [
        ("slurm", "name", "a/b"),
        ("slurm", "account", "-x"),
        ("slurm", "queue", "a b"),
        ("slurm", "jobdir", 'a"b'),
        ("pbs", "name", ".."),
        ("pbs", "name", "a" * 231),
        ("pbs", "select", "2: ncpus=1"),
        ("pbs", "variables", "A=x y"),
        ("gridengine", "name", "a/b"),
        ("gridengine", "jobdir", "/a b"),
        ("gridengine", "jobdir", "/a$USER"),
        ("pjm", "name", " a"),
        ("local", "name", "a/b"),
        ("local", "name", ".."),
        ("local", "name", " "),
        ("local", "name", "a "),
        ("local", "name", "語" * 67),
        ("slurm", "extra", "comment"),
    ],
)
def test_directives_that_do_not_fit(scheduler: SchedulerName, key: str, value: str) -> None:
    """What a scheduler would cut, expand or misread is refused with the key and what it takes."""
    with pytest.raises(InputError, match=rf"^{key}: {scheduler} cannot take ") as caught:
        directive(scheduler, value, key)
    assert "it takes" in (caught.value.hint or "")


def test_a_name_that_is_no_folder() -> None:
    """The hint says what is wrong with it: it is not the quotes."""
    with pytest.raises(InputError) as caught:
        directive("slurm", "..", "name")
    assert caught.value.hint == (
        "it takes what can name a folder too: at most 200 bytes, no /, not . or .. or blank, no blank at an end"
    )


def test_a_key_that_a_scheduler_does_not_have() -> None:
    """No key becomes a directive by accident."""
    with pytest.raises(InputError, match=r"^exclude: pbs does not support this"):
        directive("pbs", "node1", "exclude")
