"""The files that every rank of a training will read, looked at once before any rank is started. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from neoxlite.data.dataset_info import check_dataset
from neoxlite.data.indexed import IndexedDataset
from neoxlite.launch.hosts import Hosts, is_this_machine
from neoxlite.tokenizers import build_tokenizer

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig


def check_files(cfg: NeoxConfig, hosts: Hosts) -> None:
    """Open the tokenizer and the datasets of a training whose first rank is on this machine.

    Refused here, a file is told in two lines; refused by a rank, above a page of its launcher about dead processes.

    Raises:
        DataError: the training would raise it too.
    """
    if hosts.names and not is_this_machine(hosts.names[0]):
        return
    tokenizer = build_tokenizer(cfg.tokenizer_type, cfg.vocab_file, cfg.merge_file)
    for prefix in _datasets(cfg):
        check_dataset(IndexedDataset(prefix), tokenizer, cfg.padded_vocab_size(tokenizer.vocab_size))


def _datasets(cfg: NeoxConfig) -> Iterator[str]:
    if cfg.data_path:
        yield cfg.data_path
    for paths in (cfg.train_data_paths, cfg.valid_data_paths, cfg.test_data_paths):
        yield from paths or ()
