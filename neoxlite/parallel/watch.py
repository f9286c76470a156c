"""Notices the death of a rank at once, whatever the other ranks wait for.

A rank that waits for a dead peer inside a GPU collective learns of it by the time-out only: NCCL has no connection
whose end would tell it, and Python's signal handlers do not run there. So each rank keeps one idle TCP connection to
rank 0. The kernel closes it when a process ends, however it ends; rank 0 passes the news on. A rank that has not come
to an end by itself a few seconds later leaves.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import sys
import threading
from collections.abc import Callable

import torch
import torch.distributed as dist

from neoxlite.parallel.ranks import Ranks

_GRACE_S = 3.0
_CONNECT_TIMEOUT_S = 30.0
_BYE, _LOST = b"B", b"L"


class PeerWatch:
    """Watches the other ranks from `start` to `close`, or to the end of a ``with``; alone, there is nothing to watch.

    Args:
        on_lost: called with a line about the lost rank just before this process leaves with code 1.
        grace_s: how long this process may go on to end by itself after the news, in seconds.
    """

    def __init__(self, ranks: Ranks, on_lost: Callable[[str], None], *, grace_s: float = _GRACE_S):
        self._ranks = ranks
        self._on_lost = on_lost
        self._grace_s = grace_s
        self._closed = threading.Event()
        self._peers: dict[socket.socket, int] = {}
        """Open connections -> rank at the other end."""
        self._lock = threading.Lock()

    def start(self, device: torch.device) -> None:
        """Connect all ranks; every rank calls this. Without a connection the ranks run on, with time-outs alone."""
        if self._ranks.world_size == 1:
            return
        listener = socket.create_server(("", 0), backlog=self._ranks.world_size) if self._ranks.rank == 0 else None
        offer = [(listener.getsockname()[1], secrets.token_bytes(16)) if listener is not None else None]
        dist.broadcast_object_list(offer, src=0, device=device)
        assert offer[0] is not None
        port, token = offer[0]
        try:
            if listener is not None:
                self._accept(listener, token)
            else:
                self._connect(port, token)
        except OSError as error:
            print(f"WARNING: rank {self._ranks.rank} watches no other rank: {error}", file=sys.stderr, flush=True)
            return
        threading.Thread(target=self._watch, name="peer-watch", daemon=True).start()

    def __enter__(self) -> PeerWatch:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(orderly=kind is None)

    def close(self, *, orderly: bool = True) -> None:
        """Stop watching. An ``orderly`` end tells the others so; any other is a death to them."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            for connection in self._peers:
                with contextlib.suppress(OSError):
                    if orderly:
                        connection.sendall(_BYE)
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket, token: bytes) -> None:
        with listener:
            listener.settimeout(_CONNECT_TIMEOUT_S)
            while len(self._peers) < self._ranks.world_size - 1:
                connection, _ = listener.accept()
                connection.settimeout(_CONNECT_TIMEOUT_S)
                greeting = connection.recv(len(token) + 4, socket.MSG_WAITALL)
                if greeting[:-4] != token:  # a stranger
                    connection.close()
                    continue
                connection.settimeout(None)
                self._peers[connection] = int.from_bytes(greeting[-4:], "big")

    def _connect(self, port: int, token: bytes) -> None:
        address = (self._ranks.master_addr or "127.0.0.1", port)
        connection = socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S)
        connection.settimeout(None)
        connection.sendall(token + self._ranks.rank.to_bytes(4, "big"))
        self._peers[connection] = 0

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            for connection in self._peers:
                selector.register(connection, selectors.EVENT_READ)
            while selector.get_map() and not self._closed.is_set():
                for key, _ in selector.select():
                    peer = key.fileobj
                    assert isinstance(peer, socket.socket)
                    word = _read(peer)
                    selector.unregister(peer)
                    if word != _BYE and not self._closed.is_set():
                        self._lost(self._peers[peer], word)
                        return

    def _lost(self, rank: int, word: bytes) -> None:
        """Tell the others, give this process time to end by itself, then end it."""
        with self._lock:
            for connection in self._peers:
                with contextlib.suppress(OSError):
                    connection.sendall(_LOST)
        if self._closed.wait(self._grace_s):
            return
        who = "another rank" if word == _LOST else f"rank {rank}"
        line = f"rank {self._ranks.rank} lost the other ranks: {who} has ended"
        print(f"neoxlite: {line}", file=sys.stderr, flush=True)
        self._on_lost(line)
        # The main thread may sit in a collective that never returns: no exception can reach it.
        os._exit(1)


def _read(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1)
    except OSError:
        return b""
