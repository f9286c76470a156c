"""Tokenised datasets, the order of their samples, and how they are made. Needs numpy only."""

from neoxlite.data.build import DataSets, build_datasets, epoch_iterations, samples_wanted
from neoxlite.data.indexed import IndexedDataset
from neoxlite.data.loader import MicroBatches, PrefetchedBatches, valid_start_batch

__all__ = [
    "DataSets",
    "IndexedDataset",
    "MicroBatches",
    "PrefetchedBatches",
    "build_datasets",
    "epoch_iterations",
    "samples_wanted",
    "valid_start_batch",
]
