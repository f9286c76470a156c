"""What `multi_world`'s server imports once for all ranks."""

import os

# With it torch counts GPUs without touching them: a process forked behind cuInit has none.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

import torch

from neoxlite.parallel.distributed import prepare

prepare(torch.device(os.environ.get("MULTI_DEVICE", "cuda")))

import deepspeed  # noqa: E402, F401
import torch._dynamo  # noqa: E402
