"""Train the byte-level model that the package carries.

    python recipes/builtin_model.py --out build/builtin_model --steps 2000

Two cores, bfloat16 autocast, about half an hour. The run saves its whole state every few
minutes and continues from it when it is started again; the batch of a step depends on
the seed and the step only, so a resumed run sees the same data as an unbroken one.

Text: the standard library's sources of the Python that runs, files of the split
``train`` only (see ``ropewalk.extend.corpus``). A third of the sequences plant a number and
ask for it (see ``ropewalk.extend.passkey``), so that retrieval by distance can be measured.
Each line of ``log.jsonl`` is one record of the loss or of a check on held-out files.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import sys
import time
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from ropewalk.extend.corpus import standard_library
from ropewalk.extend.passkey import draw_key, plant, question, statement

ORIGINAL_LENGTH = 512
CONFIG = {
    "vocab_size": 256,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": ORIGINAL_LENGTH,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
PASSKEY_SHARE = 0.35
ANSWER_WEIGHT = 5.0
PEAK_RATE = 3e-3
COPY_FROM, COPY_UNTIL = 800, 1600
COSINE_STEPS, FALL_FROM = 3000, 1200
COPY_SHARE = 0.2


def passkey_sequence(text: bytes, rng: random.Random, length: int) -> tuple[bytes, np.ndarray]:
    """Build one training sequence that plants a key and asks for it one to three times.

    Returns ``length + 1`` bytes and the loss weight of each as a target. The digits where
    the key first appears are noise that nothing can predict: their weight is 0. The
    digits of an answer count more than filler.
    """
    key = draw_key(rng)
    ask = question()
    count = 1 if rng.random() < 0.6 else rng.choice((2, 3))
    filler_length = length + 1 - len(statement(key)) - count * (len(ask) + len(key))
    start = rng.randrange(len(text) - filler_length)
    filler = text[start : start + filler_length]
    cuts = sorted(rng.randrange(filler_length) for _ in range(count))
    cuts = [cuts[0], *cuts[1:], filler_length]
    pieces, weights = [filler[: cuts[0]]], [np.ones(cuts[0])]
    planted = statement(key).encode()
    weight = np.ones(len(planted))
    first = planted.index(key.encode())
    weight[first : first + len(key)] = 0.0
    pieces.append(planted)
    weights.append(weight)
    for begin, end in itertools.pairwise(cuts):
        pieces += [filler[begin:end], (ask + key).encode()]
        weights += [
            np.ones(end - begin + len(ask)),
            np.full(len(key), ANSWER_WEIGHT),
        ]
    return b"".join(pieces), np.concatenate(weights)


def copy_sequence(rng: random.Random, length: int) -> tuple[bytes, np.ndarray]:
    """Build one training sequence of a few random lines, each of them repeated.

    After its first bytes a repeated line can only be told by looking back for it: dense
    practice for what a passkey asks once. The first 800 steps of the committed run, which
    had passkeys but no such sequences, learned no copying at all (3.4 bits per digit, the
    entropy of a digit is 3.3); hence the steps between which they are mixed in.
    """
    alphabet = rng.choice((b"0123456789", b"0123456789abcdef", b"abcdefghijklmnopqrstuvwxyz_ "))
    lines = [
        bytes(rng.choice(alphabet) for _ in range(rng.randrange(8, 40))) + b"\n"
        for _ in range(rng.randrange(2, 7))
    ]
    out = b"".join(lines)
    while len(out) <= length:
        out += rng.choice(lines)
    return out[: length + 1], np.ones(length + 1)


def batch(text: bytes, step: int, seed: int, size: int, length: int) -> tuple[torch.Tensor, ...]:
    """Return the tokens (size, length + 1) and target weights (size, length) of one step."""
    rng = random.Random(f"{seed}/{step}")
    rows, weights = [], []
    for _ in range(size):
        draw = rng.random()
        if draw < PASSKEY_SHARE:
            row, weight = passkey_sequence(text, rng, length)
        elif draw < PASSKEY_SHARE + COPY_SHARE and COPY_FROM <= step < COPY_UNTIL:
            row, weight = copy_sequence(rng, length)
        else:
            start = rng.randrange(len(text) - length - 1)
            row, weight = text[start : start + length + 1], np.ones(length + 1)
        rows.append(np.frombuffer(row, dtype=np.uint8))
        weights.append(weight[1:])
    tokens = torch.from_numpy(np.stack(rows).astype(np.int64))
    return tokens, torch.from_numpy(np.stack(weights).astype(np.float32))


def held_out_check(
    model: LlamaForCausalLM, text: bytes, *, windows: int, trials: int
) -> dict[str, float]:
    """Measure bits per byte on held-out windows and exact retrieval at the full length."""
    rng = random.Random("held-out")
    model.eval()
    losses, hits = [], 0
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(windows):
            start = rng.randrange(len(text) - ORIGINAL_LENGTH - 1)
            piece = np.frombuffer(text[start : start + ORIGINAL_LENGTH], dtype=np.uint8)
            ids = torch.from_numpy(piece.astype(np.int64))[None]
            logits = model(ids).logits[0, :-1].float()
            losses.append(torch.nn.functional.cross_entropy(logits, ids[0, 1:]).item())
        for index in range(trials):
            key = draw_key(rng)
            room = ORIGINAL_LENGTH - len(statement(key)) - len(question()) - len(key)
            start = rng.randrange(len(text) - room)
            filler = text[start : start + room].decode("latin-1")
            trial = plant(filler, key, (index + 0.5) / trials)
            line = (trial.prompt + key).encode("latin-1")
            ids = torch.from_numpy(np.frombuffer(line, dtype=np.uint8).astype(np.int64))[None]
            guess = model(ids).logits[0, -len(key) - 1 : -1].argmax(-1)
            hits += int(torch.equal(guess, ids[0, -len(key) :]))
    model.train()
    return {
        "bits_per_byte": sum(losses) / len(losses) / math.log(2),
        "retrieval": hits / trials,
    }


def learning_rate(step: int, steps: int) -> float:
    """Warm up over 100 steps, follow a cosine, then fall linearly to a fiftieth.

    The cosine is that of a run of ``COSINE_STEPS``; the fall begins at ``FALL_FROM``, where
    the committed run was on track and was brought to its end early.
    """
    if step < 100:
        return PEAK_RATE * (step + 1) / 100
    share = (min(step, FALL_FROM) - 100) / (COSINE_STEPS - 100)
    rate = PEAK_RATE * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))
    fall = max(0, step - FALL_FROM) / max(1, steps - FALL_FROM)
    return rate * (1 - 0.98 * fall)


def optimizer_for(model: LlamaForCausalLM) -> torch.optim.Optimizer:
    """AdamW; weight decay on matrices only."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95))


def save_atomically(state: dict[str, object], path: Path) -> None:
    """Write the state beside ``path`` and rename, so that a kill leaves the old state whole."""
    scratch = path.with_suffix(".partial")
    torch.save(state, scratch)
    scratch.replace(path)


def export(model: LlamaForCausalLM, folder: Path) -> None:
    """Write the model in bfloat16 with a tokenizer whose ids are the bytes of UTF-8 text."""
    model.config.use_cache = True
    model.to(torch.bfloat16).save_pretrained(folder)
    # A byte-level BPE without merges; its alphabet is GPT-2's, reordered so that id = byte.
    letters = bytes_to_unicode()
    bpe = BPE({letters[byte]: byte for byte in range(256)}, [])
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevelDecoder()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, clean_up_tokenization_spaces=False
    ).save_pretrained(folder)


def main() -> None:
    """Parse the options, resume if there is a state, train, write the model folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of state, log and model")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=20261129)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--stop-after", type=int, default=None, help="stop early, for a trial")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)

    text = "\n\n".join(d.text for d in standard_library("train")).encode()
    held = "\n\n".join(d.text for d in standard_library("held_out")).encode()
    model = LlamaForCausalLM(LlamaConfig(**CONFIG, use_cache=False))
    optimizer = optimizer_for(model)
    state_path, log_path = options.out / "state.pt", options.out / "log.jsonl"
    first = 0
    if state_path.exists():
        state = torch.load(state_path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
        print(f"resuming at step {first}", file=sys.stderr)

    begun, running = time.monotonic(), []
    with log_path.open("a") as log:

        def record(**entry: object) -> None:
            log.write(json.dumps(entry) + "\n")
            log.flush()
            print(json.dumps(entry), file=sys.stderr)

        if first == 0:
            record(
                event="start",
                python=sys.version.split()[0],
                torch=torch.__version__,
                train_bytes=len(text),
                held_out_bytes=len(held),
                parameters=sum(p.numel() for p in model.parameters()),
                steps=options.steps,
                batch=options.batch,
                seed=options.seed,
            )
        for step in range(first, options.steps):
            tokens, weights = batch(text, step, options.seed, options.batch, ORIGINAL_LENGTH)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, options.steps)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(tokens[:, :-1]).logits
            losses = torch.nn.functional.cross_entropy(
                logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
            )
            loss = (losses * weights.flatten()).sum() / weights.sum()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            running.append(loss.item())
            done = step + 1
            if done % 50 == 0:
                elapsed = time.monotonic() - begun
                rate = (done - first) * options.batch * ORIGINAL_LENGTH / elapsed
                left = (options.steps - done) * options.batch * ORIGINAL_LENGTH / rate
                record(
                    step=done,
                    loss_bits=round(sum(running) / len(running) / math.log(2), 4),
                    bytes_per_second=round(rate),
                    minutes_left=round(left / 60, 1),
                )
                running = []
            if done % 400 == 0 or done == options.steps:
                record(step=done, **held_out_check(model, held, windows=64, trials=50))
            if done % 200 == 0 or done == options.steps:
                save_atomically(
                    {
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "step": done,
                    },
                    state_path,
                )
            if options.stop_after is not None and done >= options.stop_after:
                return

    export(model, options.out / "model")


if __name__ == "__main__":
    main()
