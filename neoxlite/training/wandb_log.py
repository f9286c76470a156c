"""Weights & Biases beside the other places of a run's numbers: never the reason that a run fails or waits.

Compute nodes often have no way out. Whether the server can be reached is known from the job script, or found out in
`PROBE_S`; without it the run is recorded on the disk from the start, and the line that sends it later is printed at the
end. Any error of the library ends its part with one warning, not the run.
"""

from __future__ import annotations

import importlib
import netrc
import os
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neoxlite.training.boards import Scalars

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig

PROBE_S = 5.0
"""How long the server is looked for."""
FINISH_S = 60.0
"""How long the end of a run waits for what is still to be sent."""
_NO_INTERNET = "the profile says that compute nodes have no internet"


class WandbLog:
    """A run of Weights & Biases on rank 0. Made by `start_wandb`; no method raises."""

    def __init__(self, run: Any, folder: str | None, say: Callable[[str], None], *, offline: bool):
        self._run: Any = run
        self._folder = folder
        self._say = say
        self._offline = offline

    def log(self, scalars: Scalars) -> None:
        """Record values of one or more iterations, ascending."""
        for iteration, values in scalars.items():
            self._guarded(partial(self._log, dict(values), iteration))

    def _log(self, values: dict[str, float], iteration: int) -> None:
        self._run.log(values, step=iteration)

    def close(self) -> None:
        """End the run, waiting for what is still to be sent for `FINISH_S` at most, and say how to send the rest."""
        ended = threading.Event()

        def finish() -> None:
            self._guarded(lambda: self._run.finish())
            ended.set()

        # In a thread, which the end of the process does not wait for: the library may wait for a dead network.
        threading.Thread(target=finish, name="wandb-finish", daemon=True).start()
        sent = ended.wait(FINISH_S)
        if self._folder is not None and (self._offline or not sent):
            self._say(f"Weights & Biases: from a machine with internet run: wandb sync {self._folder}")

    def _guarded(self, work: Callable[[], object]) -> None:
        if self._run is None:
            return
        try:
            work()
        except Exception as error:
            self._run = None
            self._say(f"WARNING: Weights & Biases has stopped recording, training continues: {_one_line(error)}")


def start_wandb(
    cfg: NeoxConfig, say: Callable[[str], None], environ: Mapping[str, str] | None = None
) -> WandbLog | None:
    """Begin a run as use_wandb and the wandb_* keys ask; None if they do not, or if it cannot be.

    With ``use_wandb: null``, GPT-NeoX's default, a run is made where a key for the server is found, as there.
    """
    env = os.environ if environ is None else environ
    asked = cfg.use_wandb
    has_key = bool(env.get("WANDB_API_KEY")) or _netrc_has(cfg.wandb_host, env)
    if asked is False or (asked is None and not has_key) or env.get("WANDB_MODE") == "disabled":
        return None
    try:
        wandb = importlib.import_module("wandb")
    except Exception as error:  # not installed, or broken by another package's version
        if asked:
            say(f"WARNING: use_wandb: {_one_line(error)}; training continues without (pip install 'hpcjob[wandb]')")
        return None
    reason = _why_offline(cfg.wandb_host, has_key, env)
    if reason is not None:
        say(f"Weights & Biases: recording on this machine only: {reason}")
    return _begin(wandb, cfg, say, offline=reason is not None)


def _begin(wandb: Any, cfg: NeoxConfig, say: Callable[[str], None], *, offline: bool) -> WandbLog | None:
    try:
        # Its console capture would put itself between the log and its readers.
        settings = wandb.Settings(base_url=cfg.wandb_host, init_timeout=30, console="off", silent=True)
        run = wandb.init(
            project=cfg.wandb_project,
            entity=cfg.wandb_team,
            group=cfg.wandb_group,
            name=cfg.wandb_run_name,
            config=cfg.as_dict(),
            mode="offline" if offline else "online",
            settings=settings,
        )
        folder = Path(str(run.dir)).parent  # .../files
    except Exception as error:
        if not offline:
            say(f"WARNING: Weights & Biases cannot be reached, recording on this machine only: {_one_line(error)}")
            return _begin(wandb, cfg, say, offline=True)
        say(f"WARNING: Weights & Biases records nothing, training continues: {_one_line(error)}")
        return None
    return WandbLog(run, str(folder), say, offline=offline)


def _why_offline(host: str, has_key: bool, env: Mapping[str, str]) -> str | None:
    if env.get("WANDB_MODE") == "offline":
        return "WANDB_MODE=offline"
    if env.get("NEOXLITE_INTERNET") == "0":
        return _NO_INTERNET
    if not has_key:
        return f"there is no key for {host} (WANDB_API_KEY, or wandb login)"
    return _unreachable(host)


def _unreachable(host: str) -> str | None:
    """Return why the server cannot be reached, or None; through a proxy where the environment names one."""
    answer: list[str | None] = [f"{host} did not answer in {PROBE_S:g} s"]

    def probe() -> None:
        try:
            with urllib.request.urlopen(host, timeout=PROBE_S):  # noqa: S310 - the user's own wandb_host
                answer[0] = None
        except urllib.error.HTTPError:
            answer[0] = None  # an answer all the same
        except (OSError, ValueError) as error:
            answer[0] = f"{host} cannot be reached ({_one_line(getattr(error, 'reason', None) or error)})"

    # In a thread: the time-out does not bound a name that is not resolved.
    thread = threading.Thread(target=probe, name="wandb-probe", daemon=True)
    thread.start()
    thread.join(PROBE_S)
    return answer[0]


def _netrc_has(host: str, env: Mapping[str, str]) -> bool:
    """Tell whether ``wandb login`` has left a key for the server."""
    try:
        path = Path(env.get("NETRC") or Path(env.get("HOME") or "~").expanduser() / ".netrc")
        name = urllib.parse.urlsplit(host).hostname or host
        return netrc.netrc(str(path)).authenticators(name) is not None
    except (OSError, RuntimeError, ValueError, netrc.NetrcParseError):  # RuntimeError: a user without a home folder
        return False


def _one_line(error: object) -> str:
    text = str(error).strip().splitlines()
    return text[0][:200] if text else type(error).__name__
