"""Measure attention by distance in a language model that was trained elsewhere.

    python recipes/decay_smollm2.py MODEL --out src/ropewalk/lab/studies/decay-smollm2.json

The file in the package is of SmolLM2-135M-Instruct (GGUF, Q4_1) on test files of Python's
standard library, four documents of 2,048 tokens; ``--text`` takes other texts. Weights are
widened to float32. ``ropewalk lab report decay`` reads the file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ropewalk.extend.loading import load
from ropewalk.extend.texts import default_texts, read_texts, tokenize
from ropewalk.lab.decay import condensed
from ropewalk.lab.decay_real import measure_transformers_decay


def main() -> None:
    """Measure and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, help="a model folder or GGUF file")
    parser.add_argument("--text", type=Path, action="append", help="a text file; may be repeated")
    parser.add_argument("--length", type=int, default=2048, help="tokens of a document")
    parser.add_argument("--documents", type=int, default=4)
    parser.add_argument("--out", type=Path, required=True, help="averages over layers and heads")
    parser.add_argument("--whole", type=Path, help="every layer and head, some megabytes")
    options = parser.parse_args()
    documents, origin = default_texts()
    if options.text:
        documents, origin = read_texts(options.text), ", ".join(p.name for p in options.text)
    loaded = load(options.model, dtype="float32")
    texts = tokenize(
        documents,
        origin,
        loaded.tokenizer,
        length=options.length,
        count=options.documents,
        scored=1,
    )
    found = measure_transformers_decay(
        loaded, texts, lambda share: print(f"\r{share:5.0%}", end="", flush=True)
    )
    print()
    named = {"model": options.model.name.removesuffix(".gguf"), **found}
    options.out.write_text(json.dumps(condensed(named)) + "\n")
    if options.whole is not None:
        options.whole.write_text(json.dumps(named) + "\n")


if __name__ == "__main__":
    main()
