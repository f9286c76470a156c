"""pdsh: ssh to each node starts an agent there, which starts that node's ranks.

Source: pdsh(1) 2.34. ``-S`` passes the largest remote exit code on (without it pdsh always returns 0), ``-N`` leaves
out the ``host:`` prefix, ``-f`` starts all nodes at once (by default 32), ``%n`` becomes the node's number.
"""

from __future__ import annotations

from hpcjob.launchers.base import NODE_SH, Word, on_this_node
from hpcjob.plan import Plan
from hpcjob.quoting import ScriptText


def launch(plan: Plan, step_file: ScriptText) -> list[list[Word]]:
    """Start an agent on each node; directly where the only node is this one (pdsh replaces ``%n`` for several only)."""
    if plan.nodes == 1:
        return [on_this_node(plan, step_file)]
    hosts: list[Word] = ["-f", str(plan.nodes), "-w", ScriptText('"$hosts"')]
    words: list[Word] = ["pdsh", "-S", "-N", "-R", "ssh", *plan.profile.launcher.pdsh_args, *hosts]
    return [words, ["bash", _remote(NODE_SH), _remote(step_file), "%n"]]


def _remote(word: ScriptText) -> ScriptText:
    """pdsh expands ``%`` in its words and gives them to a shell: quote once more, when the job runs."""
    return ScriptText(f'"$(remote_word {word})"')
