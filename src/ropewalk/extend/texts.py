"""The texts a model is measured on, as rows of tokens of one length."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from .corpus import Document, standard_library


@dataclass(frozen=True)
class TokenizedDocument:
    """A stretch of one text, exactly as long as the longest context measured.

    Attributes:
        name: file and, where a file gives several documents, which stretch of it.
        tokens: token ids.
        bytes_of_last: UTF-8 bytes of the text of the last ``scored`` tokens.
    """

    name: str
    tokens: tuple[int, ...]
    bytes_of_last: int


@dataclass(frozen=True)
class TextSet:
    """Documents of one length, with what identifies them.

    Attributes:
        documents: the documents.
        origin: where they come from, in words.
        digest: SHA-256 of the token ids of all documents.
    """

    documents: tuple[TokenizedDocument, ...]
    origin: str
    digest: str


def read_texts(files: Sequence[Path]) -> list[Document]:
    """Read text files as UTF-8.

    Raises:
        InputError: a file that cannot be read as text.
    """
    documents = []
    for path in files:
        try:
            documents.append(Document(path.name, path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                str(path),
                found=f"a file that is not readable as UTF-8 text ({error})",
                expected="a plain text file",
                fix="convert it to UTF-8 or choose another file",
            ) from None
    return documents


_ORIGINS = {
    "test": "the test suite of Python's standard library",
    "held_out": "held-out modules of Python's standard library",
}


def default_texts(split: str = "test") -> tuple[list[Document], str]:
    """Return the standard library's files that the built-in model never saw, and their name.

    Files of the test suite where this Python has one, else the held-out modules; the latter
    at once for ``split="held_out"``. Their order is by hash of the path, so that the first few
    are no one subject.
    """
    try:
        documents = standard_library(split)
    except InputError:
        # Some distributions leave the test suite out.
        split = "held_out"
        documents = standard_library(split)
    origin = _ORIGINS[split]
    documents.sort(key=lambda d: hashlib.sha256(d.name.encode()).digest())
    return documents, origin


def byte_count(tokenizer: Any, ids: Sequence[int]) -> int:
    """Return the UTF-8 bytes of the text that token ids stand for."""
    if hasattr(tokenizer, "byte_count"):
        return int(tokenizer.byte_count(list(ids)))
    return len(tokenizer.decode(list(ids)).encode())


def tokenize(
    documents: Sequence[Document],
    origin: str,
    tokenizer: Any,
    *,
    length: int,
    count: int,
    scored: int,
) -> TextSet:
    """Cut documents of ``length`` tokens from the texts, without any special token.

    Texts take turns: first each text's first stretch, then each text's second, until there
    are ``count``. Texts shorter than ``length`` are left out.

    Raises:
        InputError: no text has ``length`` tokens.
    """
    spans: list[list[tuple[int, ...]]] = []
    longest = 0
    names = []
    for document in documents:
        # A token is at least one byte: no use in tokenizing what cannot be long enough.
        size = len(document.text.encode())
        if size < length:
            longest = max(longest, size)
            continue
        ids = tokenizer(document.text, add_special_tokens=False, verbose=False)["input_ids"]
        longest = max(longest, len(ids))
        if len(ids) < length:
            continue
        names.append(document.name)
        spans.append([tuple(ids[i : i + length]) for i in range(0, len(ids) - length + 1, length)])
        if len(spans) >= count:
            break
    chosen: list[TokenizedDocument] = []
    for turn in range(max((len(s) for s in spans), default=0)):
        for name, parts in zip(names, spans, strict=True):
            if turn < len(parts) and len(chosen) < count:
                label = name if len(parts) == 1 else f"{name} ({turn + 1})"
                last = byte_count(tokenizer, parts[turn][-scored:])
                chosen.append(TokenizedDocument(label, parts[turn], last))
    if not chosen:
        raise InputError(
            "--text",
            found=f"no text of {length} tokens (the longest has at most {longest})",
            expected=f"a text as long as the longest context, {length} tokens",
            fix="pass longer texts with --text or shorter --lengths",
        )
    digest = hashlib.sha256(repr([d.tokens for d in chosen]).encode()).hexdigest()
    return TextSet(tuple(chosen), origin, digest)
