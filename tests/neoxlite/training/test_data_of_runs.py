"""The data of whole runs: looked at before the first step, gone on with at the next sample, read ahead."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import yaml
from forked_worlds import TINY, World, stop_file, tiny_config, train_rank, write_dataset

GOLDEN = Path(__file__).parents[2] / "golden"
Command = Callable[..., tuple[int, str, str]]


def _trained(ranks: Any, cfg: Any, files: Any, iterations: int, folder: Path) -> str:
    """Train for some iterations of a long run; the tokens of this rank's micro-batches go into a file."""
    from neoxlite.training.engine import Engine

    seen: list[npt.NDArray[np.int64]] = []
    real = Engine.train_step

    def step(self: Any, batches: Iterator[torch.Tensor], iteration: int) -> Any:
        taken = list(batches)
        seen.extend(batch.numpy() for batch in taken)
        return real(self, iter(taken), iteration)

    Engine.train_step = step  # type: ignore[method-assign] # in a forked child, for its life only
    # What the file asks for while a step is taken happens behind the next one.
    outcome = train_rank(ranks, cfg, files, {iterations - 1: stop_file("request")})
    np.save(folder / f"seen{ranks.rank}.npy", np.stack(seen))
    return str(outcome.outcome)


class Runs:
    """Runs of one configuration, each for some iterations, in a folder of its own."""

    def __init__(self, world: World, folder: Path, **keys: Any) -> None:
        self._world, self._folder, self._keys = world, folder, keys

    def samples(self, iterations: int, ranks: int = 1, **changes: Any) -> list[bytes]:
        """Train and return the samples seen, in the order of the data: micro-batch by micro-batch over the ranks."""
        from neoxlite.training.environment import RunFiles

        folder = self._folder / f"run{len(list(self._folder.iterdir()))}"
        folder.mkdir()
        files = RunFiles(folder / "stop", folder / "outcome.json", folder / "metrics.jsonl")
        cfg = tiny_config(folder / "tiny.yml", ranks, **{**self._keys, **changes})
        outcomes = self._world.run(ranks, _trained, cfg, files, iterations, folder)
        assert outcomes == ["stopped"] * ranks
        by_rank = [np.load(folder / f"seen{rank}.npy") for rank in range(ranks)]
        return [sample.tobytes() for batches in zip(*by_rank, strict=True) for batch in batches for sample in batch]


def test_a_changed_batch_size_goes_on_at_the_next_sample(
    world: World, text_data: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """5 iterations of 4 on one rank, then 3 of 8 on two: the samples are those of 11 iterations of 4.

    600 iterations of 4 read the data three times and 600 of 8 six times: an order made anew would be another one.
    """
    (tmp_path / "runs").mkdir()
    runs = Runs(world, tmp_path / "runs", data_path=text_data, train_iters=600, lr_decay_iters=600)
    unbroken = runs.samples(11)
    where = {"save": str(tmp_path / "ck"), "load": str(tmp_path / "ck"), "checkpoint_factor": 1000}
    first = runs.samples(5, **where)
    capfd.readouterr()
    second = runs.samples(3, 2, **where)
    out = capfd.readouterr().out
    assert out.count("the order of the data is kept: made for 2,400 samples, it is read again from its beginning") == 1
    assert "for the 4,800 of this run, where GPT-NeoX would shuffle again (for a new order: finetune: true," in out
    assert len(set(unbroken)) > 40
    assert [len(part) for part in (first, second)] == [20, 24]
    assert first + second == unbroken
    third = runs.samples(2, train_micro_batch_size_per_gpu=3, train_iters=900, **where)
    longer = runs.samples(14)
    assert first + second + third == longer


@pytest.mark.ci
def test_the_next_pass_begins_at_its_first_sample(world: World, tmp_path: Path) -> None:
    """A pass that ended is not counted again when the batch size changes: what follows is the rest of this pass."""
    tokens = np.arange(20 * 32 + 1, dtype=np.uint16) % 500
    write_dataset(tmp_path / "small", [tokens])
    (tmp_path / "runs").mkdir()
    keys = {"data_path": str(tmp_path / "small"), "split": "1,0,0", "train_iters": None, "train_epochs": 50}
    runs = Runs(world, tmp_path / "runs", gradient_accumulation_steps=1, **keys)
    where = {"save": str(tmp_path / "ck"), "load": str(tmp_path / "ck"), "checkpoint_factor": 1000}
    # 20 samples, the last of which is never used: with 4 a pass has 16 of them, with 3 it has 18.
    first = runs.samples(6, train_micro_batch_size_per_gpu=4, **where)
    one_pass = runs.samples(6, train_micro_batch_size_per_gpu=3)
    assert first == one_pass[:16] + one_pass[:8]
    second = runs.samples(5, train_micro_batch_size_per_gpu=3, override_lr_scheduler=True, **where)
    assert second == one_pass[8:] + one_pass[:5]


def test_train_epochs_ends_with_the_last_whole_batch(train: Any, tmp_path: Path) -> None:
    """20 samples, one never used: 4 batches of 4 a pass, three passes, two batches a step make 6 iterations."""
    write_dataset(tmp_path / "small", [np.arange(20 * 32 + 1, dtype=np.uint16) % 500])
    run = train(
        1,
        data_path=str(tmp_path / "small"),
        split="1,0,0",
        train_micro_batch_size_per_gpu=4,
        train_iters=None,
        train_epochs=3,
        warmup=0.0,
        lr_decay_style="linear",
        min_lr=0.0,
    )
    assert [entry["iteration"] for entry in run.metrics] == [1, 2, 3, 4, 5, 6]
    assert run.outcomes[0].outcome == "completed"
    assert run.metrics[-1]["lr"] == 0.0
    assert all(entry["data_wait_ms"] >= 0 for entry in run.metrics)


@pytest.fixture
def run_file(tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes a configuration for the command line."""

    def write(**changes: Any) -> str:
        path = tmp_path / "設定.yml"
        path.write_text(yaml.safe_dump({**TINY, **changes}, allow_unicode=True), encoding="utf-8")
        return str(path)

    return write


def test_a_start_tells_what_is_read(command: Command, run_file: Any, text_data: str) -> None:
    """Documents, tokens, epochs and samples of each split before the first iteration."""
    code, out, err = command("train", run_file(data_path=text_data, train_iters=1))
    assert code == 0, err
    table, _, _ = out.partition("iteration ")
    header, train, valid, test = [line for line in table.splitlines() if text_data in line or line.startswith("split")]
    assert header.split() == ["split", "dataset", "weight", "documents", "tokens", "epochs", "samples"]
    # "8,1,1" of 200 documents; a validation and the test wait for nothing here, as eval_iters is 0.
    assert [line.split()[3] for line in (train, valid, test)] == ["160", "20", "20"]
    assert train.split()[0::5][:2] == ["train", "1"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"data_path": "@large"}, "holds token 60000, but the vocabulary has 512"),
        ({"data_path": "@other"}, "was made with another tokenizer: GPT2BPETokenizer with 50257 tokens"),
        *(
            pytest.param(change, told, marks=pytest.mark.ci)
            for change, told in (
                ({"train_iters": 10**9}, "epochs of"),
                ({"train_iters": None, "train_epochs": 1, "train_micro_batch_size_per_gpu": 700}, "train_epochs: 1 of"),
                ({"data_path": "@no"}, "no dataset"),
                ({"split": "0,1,1"}, "there is no training data"),
                ({"train_epochs": 1}, "train_epochs 1 and train_iters 10 are both given"),
                ({"train_iters": None}, "train_iters is not given"),
            )
        ),
    ],
    ids=["token", "tokenizer", "epochs", "no batch", "no file", "no share", "both", "neither"],
)
def test_wrong_data_end_a_run_before_its_first_step(
    change: dict[str, Any], told: str, command: Command, run_file: Any, text_data: str, tmp_path: Path
) -> None:
    """Code 2, one line that names the dataset or key, one that says what to do, and no iteration."""
    write_dataset(tmp_path / "large", [np.arange(2000, dtype=np.uint16), np.array([60000] * 20, np.uint16)])
    _made_with_gpt2(tmp_path / "other")
    keys = {"data_path": text_data, **change}
    if str(keys["data_path"]).startswith("@"):
        keys["data_path"] = str(tmp_path / keys["data_path"][1:])
    code, out, err = command("train", run_file(**keys))
    assert code == 2, out + err
    assert told in err
    assert len(err.strip().splitlines()) == 2
    assert "elapsed time" not in out


def _made_with_gpt2(prefix: Path) -> None:
    from neoxlite.data.preprocess import Options, tokenize_files
    from neoxlite.tokenizers import build_tokenizer

    text = prefix.with_suffix(".jsonl")
    text.write_text(json.dumps({"text": "\0\0" * 3000}) + "\n")  # ids that CharLevelTokenizer knows too
    options = Options(tokenizer_type="GPT2BPETokenizer")
    tokenize_files([text], str(prefix), build_tokenizer("GPT2BPETokenizer", None, None), options)
    for suffix in (".bin", ".idx", ".info.json"):
        Path(f"{prefix}_text_document{suffix}").rename(f"{prefix}{suffix}")


@pytest.mark.ci
def test_a_checkpoint_of_other_data_is_told(command: Command, run_file: Any, text_data: str, tmp_path: Path) -> None:
    """Another seed is another order: the run goes on, and says that samples may come again."""
    where = {"save": str(tmp_path / "ck"), "load": str(tmp_path / "ck"), "checkpoint_factor": 2, "data_path": text_data}
    assert command("train", run_file(train_iters=2, **where))[0] == 0
    code, out, err = command("train", run_file(train_iters=4, lr_decay_iters=2, **where))
    assert code == 0, err
    assert "training data continues at sample 8 of " in out
    assert "are not those of the checkpoint" not in out
    code, out, err = command(
        "train", run_file(train_iters=6, lr_decay_iters=2, seed=7, split="1", eval_iters=1, **where)
    )
    assert code == 0, err
    assert "nothing is evaluated in training: split: 1 leaves no document for validation" in out
    assert "the cosine of the learning rate ends at iteration 2, training at 6" in out
    assert "WARNING: the training data are not those of the checkpoint" in out
    assert "Training continues, as data may be added on purpose; with finetune: true" in out
    manifest = tmp_path / "ck/global_step6/manifest.json"
    content = json.loads(manifest.read_text())
    del content["crc32"]
    content["training"]["data"]["next_sample"] = "x"
    manifest.write_text(json.dumps(content))
    code, out, err = command("train", run_file(train_iters=8, lr_decay_iters=2, seed=7, **where))
    assert code == 1
    assert "training.data is damaged" in err


@pytest.fixture
def hugging_face_folder(tmp_path: Path) -> Path:
    """A folder as `save_pretrained` of a model and its tokenizer leaves it."""
    folder = tmp_path / "トークナイザ"
    folder.mkdir()
    shutil.copy(GOLDEN / "tokenized/own_bpe_tokenizer.json", folder / "tokenizer.json")
    (folder / "special_tokens_map.json").write_text('{"eos_token": "<|endoftext|>"}')
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.mark.ci
def test_texts_come_from_the_checkpoint_alone(
    command: Command, run_file: Any, text_data: str, hugging_face_folder: Path, tmp_path: Path
) -> None:
    """The tokenizer's folder is in the checkpoint, the keys of text generation are the defaults."""
    keys = {
        "data_path": text_data,
        "tokenizer_type": "HFGPT2Tokenizer",
        "vocab_file": str(hugging_face_folder),
        "train_iters": 1,
        "save": str(tmp_path / "ck"),
        "checkpoint_factor": 1,
        "maximum_tokens": 3,
        "temperature": 0.5,
        "num_samples": 2,
    }
    code, _, err = command("train", run_file(**keys))
    assert code == 0, err
    shutil.rmtree(hugging_face_folder)
    saved = tmp_path / "ck/global_step1/tokenizer" / hugging_face_folder.name
    assert sorted(path.name for path in saved.iterdir()) == ["special_tokens_map.json", "tokenizer.json"]

    code, out, err = command("generate", "--load", str(tmp_path / "ck"), "--prompt", "def")
    assert code == 0, err
    parts = re.split(r"--- \d of 2 ---\n", out)
    assert [part[:3] for part in parts] == ["", "def", "def"]
    assert parts[1] != parts[2]  # two draws at temperature 0.5; the most probable tokens would be the same
    again = command("generate", "--load", str(tmp_path / "ck"), "--prompt", "def", "--temperature", "0")[1]
    greedy = re.split(r"--- \d of 2 ---\n", again)
    assert greedy[1] == greedy[2]

    (tmp_path / "prompts").write_text("def f\n\n関数\n", encoding="utf-8")
    written = tmp_path / "texts.jsonl"
    files = ["-i", str(tmp_path / "prompts"), "-o", str(written)]
    code, _, err = command("generate", "--load", str(tmp_path / "ck"), *files, "--num-samples", "1")
    assert code == 0, err
    texts = [json.loads(line) for line in written.read_text(encoding="utf-8").splitlines()]
    assert [text["context"] for text in texts] == ["def f", "関数"]
    assert [text["length"] for text in texts] == [3, 3]
    code, _, err = command("generate", "--load", str(tmp_path / "ck"), "-i", str(tmp_path / "no"))
    assert code == 2
    assert "No such file" in err
