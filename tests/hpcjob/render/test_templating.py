"""Templates: strict, sandboxed, and no way around the filters; the user's own come first and are announced."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest

from hpcjob.errors import HpcjobError
from hpcjob.render import render, render_with_notes
from hpcjob.resources import shipped
from tests.hpcjob.render.plans import plan


def with_template(own_place: Path, text: str, name: str = "lab.sh.j2") -> Path:
    """Write a template of the user's."""
    path = own_place / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "{{ name }}",
        "{{ name ~ 'x' }}",
        "{{ (name | sh('name')) ~ name }}",
        "{{ name | sh('name') | length ~ '' }}",
        "{{ 'constant' }}",
        "{{ modules }}",
        "{{ True }}",
        "{{ name | indented }}",
    ],
)
def test_a_value_without_a_filter_is_refused(own_place: Path, text: str) -> None:
    """Only what went through a filter, and whole numbers, come out of a template."""
    path = with_template(own_place, text)
    with pytest.raises(HpcjobError, match="went through no filter") as caught:
        render(plan("lab"), template=path)
    assert str(path) in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["{{ nothing }}", "{{ name.nothing | sh('x') }}", "{% if nothing %}{% endif %}"])
def test_an_unknown_name_is_an_error(own_place: Path, text: str) -> None:
    """A misspelt name gives no empty text."""
    with pytest.raises(HpcjobError, match=r"undefined|no attribute"):
        render(plan("lab"), template=with_template(own_place, text))


@pytest.mark.parametrize(
    "text",
    [
        "{{ name.__class__.__mro__ | sh('x') }}",
        "{{ ''.__class__.__base__.__subclasses__() | sh('x') }}",
        "{{ self.__init__.__globals__ | sh('x') }}",
        "{{ lipsum.__globals__ | sh('x') }}",
    ],
)
def test_templates_cannot_reach_python(own_place: Path, text: str) -> None:
    """A template of somebody else's cannot run code on the login node."""
    with pytest.raises(HpcjobError, match=r"unsafe|undefined"):
        render(plan("lab"), template=with_template(own_place, text))


def test_a_broken_template_names_file_and_line(own_place: Path) -> None:
    """A syntax error is the user's to mend: file and line, no traceback."""
    path = with_template(own_place, "ok\n{% if %}\n")
    with pytest.raises(HpcjobError, match=rf"^{path}:2: "):
        render(plan("lab"), template=path)
    with pytest.raises(HpcjobError, match=r"there is no template none.sh.j2"):
        render(plan("lab"), template=with_template(own_place, '{% extends "none.sh.j2" %}'))
    with pytest.raises(HpcjobError, match="No such file"):
        render(plan("lab"), template=own_place / "gone.j2")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(HpcjobError, match=r"UTF-8|decode"):
        render(plan("lab"), template=path)


def test_lengths_of_bash_are_no_comments(own_place: Path) -> None:
    """Jinja's usual comment would swallow a script from ``${#array[@]}`` on."""
    path = with_template(own_place, "echo ${#array[@]} {## a comment ##}{{ nodes }}\n")
    assert render(plan("lab"), template=path) == "echo ${#array[@]} 2\n"


def test_a_template_may_extend_a_shipped_one(own_place: Path) -> None:
    """A site adds its lines to a block; the script says which template it came from."""
    path = with_template(
        own_place, '{% extends "slurm.sh.j2" %}{% block directives %}\n#SBATCH --x\n{% endblock %}\n', "site.sh.j2"
    )
    rendered = render_with_notes(plan("lab"), template=path)
    assert "\n#SBATCH --x\n# a laboratory's" in rendered.script
    assert rendered.notes == (f"not the shipped templates: {path}",)


def test_a_template_of_the_users_comes_first_and_is_announced(own_place: Path) -> None:
    """A file in ./templates is used in place of the shipped one, with a note in the script and for the terminal."""
    usual = render(plan("lab"))
    folder = own_place / "templates" / "parts"
    folder.mkdir(parents=True)
    (folder / "rank.sh").write_text("# mine\n")
    rendered = render_with_notes(plan("lab"))
    assert "# mine\n" in rendered.script
    assert rendered.notes == ("not the shipped templates: templates/parts/rank.sh",)
    assert "# note: not the shipped templates: templates/parts/rank.sh\n" in rendered.script

    def digest(script: str) -> str:
        return next(line for line in script.split("\n") if line.startswith("# template "))

    assert digest(rendered.script) != digest(usual)


def test_copies_of_the_shipped_templates_are_no_news(own_place: Path) -> None:
    """A checkout beside an installation: nothing is said of a copy, and of those that differ one line says all."""
    copytree(shipped("templates"), own_place / "templates")
    assert render_with_notes(plan("lab")).notes == ()
    for name in ("rank.sh", "common.sh"):
        with (own_place / "templates" / "parts" / name).open("a") as file:
            file.write("# mine\n")
    (said,) = render_with_notes(plan("lab")).notes
    assert said.startswith("not the shipped templates: ")
    assert sorted(said.partition(": ")[2].split(", ")) == ["templates/parts/common.sh", "templates/parts/rank.sh"]


def test_notes_of_the_plan_are_comments() -> None:
    """What the user should know stands in the script too, on one line each."""
    script = render(plan("abci3", account=None))
    assert "\n# note: no account given; abci3 refuses" in script
