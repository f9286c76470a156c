"""Which hosts a run uses, and how many processes of each: DeepSpeed's hostfile, include and exclude.

Formats: DeepSpeed's launcher/runner.py at 65d9f992. A line of a hostfile is ``NAME slots=N``; a filter is
``host1@host2:0,2``, whole hosts or GPUs of them.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neoxlite.errors import ConfigError

_LINE: Final = re.compile(r"(\S+)\s+slots=([0-9]{1,4})")
_NUMBER: Final = re.compile(r"[0-9]{1,4}")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*", re.ASCII)
_MOST_SLOTS: Final = 1024

Slots = dict[str, list[int]]
"""Host -> the numbers of its GPUs, in the order of the file."""


@dataclass(frozen=True)
class Hosts:
    """Where the processes of a run are.

    Attributes:
        names: the hosts, in order; empty: this machine.
        per_host: processes of each host.
        gpus: numbers of the GPUs of each host, where they are not the first ``per_host``.
    """

    names: tuple[str, ...]
    per_host: int
    gpus: tuple[int, ...] | None = None

    @property
    def world_size(self) -> int:
        """Processes of the run."""
        return max(1, len(self.names)) * self.per_host

    def __str__(self) -> str:
        own = f"{self.per_host} {'process' if self.per_host == 1 else 'processes'}"
        if len(self.names) < 2:
            return f"this machine, {own}"
        return f"{len(self.names)} hosts ({', '.join(self.names)}), {own} each, {self.world_size} in all"


def read_hostfile(path: Path) -> Slots:
    """Return the hosts of a hostfile and their slots.

    Raises:
        ConfigError: it cannot be read, a line is not ``NAME slots=N``, a host stands there twice, or there is none.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(
            f"hostfile {path} cannot be read: {reason}", hint="give a file with lines such as: node1 slots=8"
        ) from None
    hosts: Slots = {}
    for number, whole in enumerate(lines, start=1):
        line = whole.partition("#")[0].strip()
        if not line:
            continue
        match = _LINE.fullmatch(line)
        if match is None or not _NAME.fullmatch(match.group(1)) or not 1 <= int(match.group(2)) <= _MOST_SLOTS:
            raise ConfigError(f"{path}:{number}: {line[:60]!r} is not a host", hint="write it as: node1 slots=8")
        if match.group(1) in hosts:
            raise ConfigError(f"{path}:{number}: {match.group(1)} stands there twice", hint="name each host once")
        hosts[match.group(1)] = list(range(int(match.group(2))))
    if not hosts:
        raise ConfigError(f"hostfile {path} names no host", hint="give lines such as: node1 slots=8")
    return hosts


def filtered(hosts: Slots, include: str | None, exclude: str | None) -> Slots:
    """Return what ``include`` takes, or what ``exclude`` leaves, of the hosts.

    Raises:
        ConfigError: both are given, one is malformed or names what is not there, or nothing is left.
    """
    if include and exclude:
        raise ConfigError("include and exclude are both given", hint="give one of them")
    if include:
        asked = _parse_filter("include", include, hosts)
        kept = {host: asked[host] for host in hosts if host in asked}
    elif exclude:
        gone = _parse_filter("exclude", exclude, hosts)
        kept = {host: [gpu for gpu in slots if gpu not in gone.get(host, ())] for host, slots in hosts.items()}
    else:
        return hosts
    kept = {host: slots for host, slots in kept.items() if slots}
    if not kept:
        raise ConfigError(f"exclude: {exclude} leaves no host", hint=f"the hosts are {', '.join(hosts)}")
    return kept


def _parse_filter(key: str, text: str, hosts: Slots) -> Slots:
    """Return the hosts and slots that a filter names; a host without numbers stands for all of it."""
    found: Slots = {}
    for part in text.split("@"):
        host, colon, listed = part.strip().partition(":")
        if host not in hosts:
            raise ConfigError(f"{key}: {host or '(empty)'} is not among the hosts", hint=f"they are {', '.join(hosts)}")
        numbers = [number.strip() for number in listed.split(",")] if colon else [str(slot) for slot in hosts[host]]
        wrong = [number for number in numbers if not _NUMBER.fullmatch(number) or int(number) not in hosts[host]]
        if wrong:
            raise ConfigError(
                f"{key}: {host} has no slot {wrong[0] or '(empty)'}", hint=f"it has 0 to {len(hosts[host]) - 1}"
            )
        found[host] = sorted({*found.get(host, ()), *map(int, numbers)})
    return found


def choose_hosts(hosts: Slots, *, num_nodes: int, num_gpus: int | None) -> Hosts:
    """Return the first ``num_nodes`` hosts (all, if that is below 1), with ``num_gpus`` processes each at most.

    Raises:
        ConfigError: there are fewer hosts, or they have different slots, which no launch line here can express.
    """
    if num_nodes > len(hosts):
        raise ConfigError(
            f"num_nodes: {num_nodes} requested, but there are {len(hosts)} hosts ({', '.join(hosts)})",
            hint="ask for fewer, or add hosts to the hostfile",
        )
    names = list(hosts)[:num_nodes] if num_nodes > 0 else list(hosts)
    used = {name: tuple(hosts[name][:num_gpus]) for name in names}
    first = used[names[0]]
    other = next((name for name in names if used[name] != first), None)
    if other is not None:
        raise ConfigError(
            f"{names[0]} and {other} have different slots ({_listed(first)} and {_listed(used[other])})",
            hint="give num_gpus: the number that all have, or omit hosts with exclude",
        )
    return Hosts(tuple(names), len(first), None if first == tuple(range(len(first))) else first)


def _listed(slots: tuple[int, ...]) -> str:
    return ",".join(map(str, slots))


def this_machine(num_gpus: int | None, environ: Mapping[str, str]) -> Hosts:
    """Return one process for each GPU of this machine, ``num_gpus`` at most; without GPUs ``num_gpus`` processes or 1.

    Raises:
        ConfigError: ``num_gpus`` is more than there are.
    """
    gpus = count_gpus(environ)
    if gpus and num_gpus is not None and num_gpus > gpus:
        raise ConfigError(
            f"num_gpus: {num_gpus} requested, but this machine has {gpus}", hint=f"ask for at most {gpus}"
        )
    return Hosts((), num_gpus or gpus or 1)


def count_gpus(environ: Mapping[str, str]) -> int:
    """Return how many GPUs of this machine a process may use, without the driver's library."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() not in ("", "-1", "NoDevFiles")])
    return len([path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdecimal()])


def is_this_machine(name: str) -> bool:
    """Return whether a host's name or address is one of this machine's own."""
    own = socket.gethostname()
    if name in ("localhost", own, own.partition(".")[0]):
        return True
    try:
        addresses = {found[4][0] for found in socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)}
    except OSError:
        return False
    return any(_is_own(str(address)) for address in addresses)


def _is_own(address: str) -> bool:
    """Return whether a socket can be bound to an address, which only one of this machine's own allows."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
