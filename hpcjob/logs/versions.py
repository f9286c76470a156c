"""Versions of software, and conditions on them: ``nccl >= 2.21``, ``torch < 2.2, nccl >= 2.18``."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Final

from hpcjob.logs.lazy import lazy

SOFTWARE: Final = ("nccl", "torch", "cuda", "driver", "deepspeed", "slurm")
"""What a condition may name; groups of a rule's pattern with these names tell the version that the log is of."""

_CONDITION = lazy(r"\s*([a-z]+)\s*(<=|>=|==|<|>)\s*(\d+(?:\.\d+){0,3})\s*")
_OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq}
_NUMBERS = lazy(r"\d{1,9}")
_NCCL_CODE = lazy(r"\d{4,5}")


class Condition:
    """What must hold of the versions for a text to apply; ``2.21.5`` is within ``== 2.21`` and ``<= 2.21``.

    Raises:
        ValueError: the text is no condition, or names something unknown.
    """

    def __init__(self, text: str) -> None:
        self._terms: list[tuple[str, str, tuple[int, ...]]] = []
        for part in text.split(","):
            match = _CONDITION.fullmatch(part)
            if match is None:
                raise ValueError(f"{part.strip()!r} is not a condition such as 'nccl >= 2.21'")
            if match[1] not in SOFTWARE:
                raise ValueError(f"{match[1]!r} is none of {', '.join(SOFTWARE)}")
            self._terms.append((match[1], match[2], numbers(match[3])))

    def holds(self, known: Mapping[str, str]) -> bool:
        """Whether all of it holds; False if a version that it needs is not known."""
        return all(name in known and _compared(numbers(known[name]), sign, than) for name, sign, than in self._terms)


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version; ``2.21.5+cuda12.4`` is (2, 21, 5), NCCL's 22105 the same."""
    version = version.partition("+")[0]
    if _NCCL_CODE.fullmatch(version):
        code = int(version)
        # NCCL_VERSION_CODE: 10000 x major from 2.9 on, 1000 x major before.
        return (code // 10000, code // 100 % 100, code % 100) if code >= 10000 else (code // 1000, code // 100 % 10)
    return tuple(int(part) for part in _NUMBERS.findall(version)[:4])


def _compared(version: tuple[int, ...], sign: str, than: tuple[int, ...]) -> bool:
    return bool(version) and bool(_OPERATORS[sign](version[: len(than)], than))
