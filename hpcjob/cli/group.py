"""The ``hpcjob`` command: one module per subcommand, imported on use."""

from __future__ import annotations

import click

from hpcjob import __version__
from neoxlite.common.cli import LazyGroup

_COMMANDS = {
    "render": ("hpcjob.cli.render:render", "Print the batch script of a job."),
    "submit": ("hpcjob.cli.submit:submit", "Submit a job, and follow it if requested."),
    "interactive": ("hpcjob.cli.interactive:interactive", "Start a shell on compute nodes, with a job's environment."),
    "status": ("hpcjob.cli.status:status", "Show the state of jobs."),
    "list": ("hpcjob.cli.list:list_jobs", "List jobs, newest first."),
    "show": ("hpcjob.cli.show:show", "Show everything known of one job."),
    "tail": ("hpcjob.cli.tail:tail", "Follow a job's log: loss, NCCL, errors."),
    "explain": ("hpcjob.cli.explain:explain", "Say why a job ended: one cause, one fix."),
    "plot": ("hpcjob.cli.plot:plot", "Draw losses and rates of runs, or make an HTML report."),
    "export": ("hpcjob.cli.export:export", "Turn logs into CSV, JSON lines or TensorBoard files."),
    "watch": ("hpcjob.cli.watch:watch", "Watch jobs on a live screen: states, losses, log."),
    "wait": ("hpcjob.cli.wait:wait", "Wait for jobs to end; the exit code is the job's."),
    "cancel": ("hpcjob.cli.cancel:cancel", "End jobs."),
    "forget": ("hpcjob.cli.forget:forget", "Hide jobs from the list; the jobs and their files stay."),
    "hold": ("hpcjob.cli.hold:hold", "Keep waiting jobs from starting."),
    "release": ("hpcjob.cli.hold:release", "Release held jobs."),
    "attach": ("hpcjob.cli.attach:attach", "Track a job that was submitted by hand."),
    "profile": ("hpcjob.cli.profile:profile", "List, show and check cluster profiles."),
    "env": ("hpcjob.cli.env:env", "Make the Python environment of a cluster's jobs."),
    "schema": ("hpcjob.cli.schema:schema", "Print the JSON Schema of job files or profiles."),
    "completion": ("hpcjob.cli.completion:completion", "Print the shell completion script."),
}

_EPILOG = """\b
Exit codes: 0 done; 1 it failed; 2 wrong usage or refused input;
  64-79 what explain and profile check find; 130 Ctrl-C.
  wait and submit --follow have the job's own; wait: 75 it gave up.

\b
Files, below ~/.config/hpcjob and ~/.local/state/hpcjob
(or $XDG_CONFIG_HOME/hpcjob and $XDG_STATE_HOME/hpcjob):
  config.yml                     profile, accounts and mail_to for all jobs
  cluster_profiles, jobs,
  templates, log_rules           your own, before the shipped ones
  *.jsonl                        the jobs, a file for each profile and host

\b
Environment:
  HPCJOB_PROFILE, HPCJOB_ACCOUNT where options and job file say nothing
  HPCJOB_PATH                    more folders with cluster_profiles, jobs, ...
  NO_COLOR, HPCJOB_DEBUG         no colours; as --debug
"""

EXTRAS = dict.fromkeys(("matplotlib", "plotext", "textual"), "hpcjob[report]")
"""What to install for a module that may be missing."""


@click.group(cls=LazyGroup, lazy=_COMMANDS, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hpcjob")
def cli() -> None:
    """Render, submit, track and read jobs that train language models on shared clusters.

    One job file says what to run, one cluster profile where; the batch script is yours to read.

    \b
    Examples:
      hpcjob submit -p local --follow        try it: a small model on this machine
      hpcjob render -p abci --nodes 2        the 2.7B run as a PBS script
      hpcjob submit jobs/2.7B/dp.yml -p lab  submit it to a Slurm cluster
      hpcjob tail -f --loss                  its losses and rates, as they come
      hpcjob explain                         why the newest job ended
      hpcjob wait && hpcjob submit next.yml  the exit code is the job's own

    Any command takes --debug, which shows the traceback of an error.
    """
