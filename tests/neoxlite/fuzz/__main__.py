"""Fuzz a reader: ``python -m tests.neoxlite.fuzz idx|yaml|jsonl [--seconds 600] [--corpus DIR]``.

The search is guided by the coverage of the readers (atheris: ``pip install atheris``). An input that breaks a promise
of `tests.neoxlite.fuzz.targets` ends the run with its traceback and is kept as ``crash-...`` in the corpus folder; to
see it again, without atheris: ``--replay FILE``.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

_INSTRUMENTED = ("neoxlite.config", "neoxlite.data", "json", "yaml")


def main() -> None:
    """Run one target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=["idx", "yaml", "jsonl"])
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--corpus", type=Path, help="folder that keeps inputs of new coverage; default: a new one")
    parser.add_argument("--seed", type=int, default=0, help="of the search; 0 is another one each time")
    parser.add_argument("--replay", type=Path, help="give this file to the reader once, and end")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # of lines left out, thousands a second
    with tempfile.TemporaryDirectory() as name:
        if options.replay is None:
            corpus = options.corpus or Path(tempfile.mkdtemp(prefix=f"fuzz-{options.target}-"))
            _fuzz(options.target, Path(name), corpus, options.seconds, options.seed)
        else:
            from tests.neoxlite.fuzz.targets import TARGETS

            TARGETS[options.target].check(Path(name), options.replay.read_bytes())


def _fuzz(name: str, folder: Path, corpus: Path, seconds: int, seed: int) -> None:
    """Search until the time is over or something is found; does not return."""
    import atheris

    with atheris.instrument_imports(include=list(_INSTRUMENTED)):
        from tests.neoxlite.fuzz.targets import TARGETS

    target = TARGETS[name]
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(data)
    words = folder / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words), encoding="ascii")
    arguments = [sys.argv[0], f"-max_total_time={seconds}", f"-seed={seed}", f"-dict={words}"]
    arguments += [f"-artifact_prefix={corpus}/", "-max_len=4096", "-timeout=20", "-rss_limit_mb=4096"]
    atheris.Setup([*arguments, "-print_final_stats=1", str(corpus)], lambda data: target.check(folder, data))
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    """Return a word as a dictionary of libFuzzer has it."""
    return "".join(chr(byte) if 0x20 < byte < 0x7F and byte not in b'"\\' else f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
