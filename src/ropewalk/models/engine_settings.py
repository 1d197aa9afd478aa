"""What an engine is told on its command line about positions, read from that line.

vLLM and SGLang take JSON that replaces keys of the model's config; llama.cpp, Ollama and
KoboldCpp take numbers that replace values of a GGUF file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError
from .flags import Flags, split_flags
from .plan import Sourced

_LLAMA_CPP = (
    "rope-scale", "rope-freq-base", "rope-freq-scale", "yarn-orig-ctx", "yarn-ext-factor",
    "yarn-attn-factor", "grp-attn-n", "grp-attn-w", "override-kv",
)  # fmt: skip
_LLAMA_CPP_PROGRAMS = {"llama-server", "llama-cli"}
_PYTHON_PROGRAMS = frozenset({"vllm", "sglang", "llama_cpp"})
_OF_MEGATRON = ("hidden-size", "num-attention-heads", "rotary-base", "position-embedding-type")
_LLAMA_CPP_KINDS = ("none", "linear", "yarn")
_MODEL_FLAGS = ("model", "model-path", "hf", "hf-repo", "m", "tokenizer-path")


@dataclass
class EngineSettings:
    """Positional settings of one command line.

    Attributes:
        format: the engine.
        label: how errors name the text.
        model: the model that the line names, or None.
        overrides: keys of a config that the line replaces (vLLM, SGLang).
        numbers: the other values, by concept.
        metadata: keys of a GGUF file that the line replaces.
        notes: what a user should know.
    """

    format: str
    label: str
    model: str | None = None
    overrides: dict[str, Any] | None = None
    numbers: dict[str, Sourced] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def value(self, concept: str) -> Any:
        """Return a value, or None."""
        found = self.numbers.get(concept)
        return None if found is None else found.value


def read_settings(text: str, label: str) -> EngineSettings | None:
    """Read an engine's command line, or return None where the text is none.

    Raises:
        InputError: flags of an engine with values that it would not take.
    """
    if _MODELFILE.search(text):
        return _modelfile(text, label)
    flags = _hyphened(split_flags(text, label))
    words = {word.rsplit("/", 1)[-1] for word in flags.words}
    kind = flags.values.get("rope-scaling")
    json_kind = isinstance(kind, str) and kind.lstrip().startswith("{")
    if flags.has("ropeconfig"):
        return _koboldcpp(flags)
    if flags.has("json-model-override-args") or "sglang.launch_server" in words | set(
        map(str, flags.values.values())
    ):
        return _overriding(flags, "sglang", "json-model-override-args", "context-length")
    if flags.has("hf-overrides", "max-model-len") or "vllm" in words or json_kind:
        return _overriding(flags, "vllm", "hf-overrides", "max-model-len")
    betas = flags.has("yarn-beta-fast", "yarn-beta-slow") and not flags.has(*_OF_MEGATRON)
    server = flags.values.get("m") == "llama_cpp.server"
    if flags.has(*_LLAMA_CPP) or kind is not None or betas or words & _LLAMA_CPP_PROGRAMS or server:
        return _llama_cpp(flags)
    return None


def _hyphened(flags: Flags) -> Flags:
    """Write the flags of programs in Python, which take underscores too, with hyphens."""
    programs = [str(flags.values.get("m", "")), *flags.words]
    if not any(program.split(".")[0] in _PYTHON_PROGRAMS for program in programs):
        return flags
    values = {key.replace("_", "-"): value for key, value in flags.values.items()}
    return Flags(flags.label, {**values, **flags.values}, flags.words)


def _number(flags: Flags, name: str, *, whole: bool = False, positive: bool = True) -> float | None:
    text = flags.values.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = float("nan")
    if value != value or abs(value) == float("inf") or (whole and value != int(value)):
        raise InputError(
            f"{flags.label}: --{name}",
            found=repr(text),
            expected="a whole number" if whole else "a number",
            fix="correct the value",
        )
    if positive and value <= 0:
        raise InputError(
            f"{flags.label}: --{name}",
            found=repr(text),
            expected="a number above 0",
            fix="correct the value, or leave the flag out",
        )
    return int(value) if whole else value


def _model(flags: Flags, *verbs: str) -> str | None:
    for name in _MODEL_FLAGS:
        found = flags.values.get(name)
        # python -m vllm.entrypoints… names a program, not a model.
        if isinstance(found, str) and found.split(".")[0] not in _PYTHON_PROGRAMS:
            return found
    words = list(flags.words)
    for verb in verbs:
        if verb in words[:-1]:
            return words[words.index(verb) + 1]
    return None


def _overriding(flags: Flags, engine: str, name: str, length: str) -> EngineSettings:
    out = EngineSettings(engine, flags.label, _model(flags, "serve"))
    overrides = flags.json(name)
    block = flags.json("rope-scaling")
    if block is not None:
        out.notes.append(
            "--rope-scaling was removed from vLLM; its place is --hf-overrides "
            "'{\"rope_parameters\": …}'"
        )
        overrides = {**(overrides or {}), "rope_scaling": block}
    theta = _number(flags, "rope-theta")
    if theta is not None:
        overrides = {**(overrides or {}), "rope_theta": theta}
    out.overrides = overrides
    tokens = _number(flags, length, whole=True)
    if tokens is not None:
        out.numbers["context"] = Sourced(tokens, f"--{length}")
    return out


def _llama_cpp(flags: Flags) -> EngineSettings:
    out = EngineSettings("llama.cpp", flags.label, _model(flags))
    kind = flags.values.get("rope-scaling")
    if kind is not None:
        if kind not in _LLAMA_CPP_KINDS:
            raise InputError(
                f"{flags.label}: --rope-scaling",
                found=repr(kind),
                expected="none, linear or yarn",
                fix="llama.cpp has no other",
            )
        out.numbers["kind"] = Sourced(kind, "--rope-scaling")
    for concept, name, whole in (
        ("base", "rope-freq-base", False),
        ("original", "yarn-orig-ctx", True),
        ("beta_fast", "yarn-beta-fast", False),
        ("beta_slow", "yarn-beta-slow", False),
        ("context", "ctx-size", True),
        ("context", "c", True),
        ("context", "n-ctx", True),
        ("groups", "grp-attn-n", True),
        ("group_width", "grp-attn-w", True),
    ):
        found = _number(flags, name, whole=whole)
        if found is not None:
            out.numbers[concept] = Sourced(found, f"--{name}" if len(name) > 1 else f"-{name}")
    mix = _number(flags, "yarn-ext-factor", positive=False)
    if mix is not None and mix >= 0:
        out.numbers["mix"] = Sourced(mix, "--yarn-ext-factor")
    amplitude = _number(flags, "yarn-attn-factor", positive=False)
    if amplitude is not None and amplitude >= 0:
        out.numbers["amplitude"] = Sourced(amplitude, "--yarn-attn-factor")
        out.notes.append(
            f"--yarn-attn-factor {amplitude:g} has no effect: llama.cpp overwrites it wherever "
            "YaRN is on"
        )
    scale, frequency = _number(flags, "rope-scale"), _number(flags, "rope-freq-scale")
    if scale is not None and frequency is not None and abs(scale * frequency - 1) > 1e-6:
        raise InputError(
            f"{flags.label}: --rope-scale",
            found=f"{scale:g}, with --rope-freq-scale {frequency:g}",
            expected="one of the two; --rope-freq-scale is 1 / --rope-scale",
            fix="remove one",
        )
    if scale is not None:
        out.numbers["factor"] = Sourced(scale, "--rope-scale")
    elif frequency is not None:
        out.numbers["factor"] = Sourced(_inverse(frequency), "--rope-freq-scale (its inverse)")
    for entry in flags.values.get("override-kv", ()):
        key, value = _override(str(entry), flags.label)
        out.metadata[key] = value
    if out.value("groups") not in (None, 1):
        out.notes.append(
            "--grp-attn-n groups positions beyond a window (self-extend); that is not described "
            "here"
        )
    _note_factor(out)
    return out


def _inverse(frequency: float) -> float:
    """Return the stretch that a frequency scale means: 0.25 means 4, 0.333… means 3."""
    return float(f"{1 / frequency:.9g}")


def _override(entry: str, label: str) -> tuple[str, Any]:
    """Read ``key=type:value``."""
    key, _, rest = entry.partition("=")
    kind, _, text = rest.partition(":")
    converters: dict[str, Callable[[str], Any]] = {
        "int": int, "float": float, "str": str, "bool": lambda word: word == "true",
    }  # fmt: skip
    convert = converters.get(kind)
    try:
        if convert is None or not key:
            raise ValueError
        return key, convert(text)
    except (ValueError, OverflowError):
        raise InputError(
            f"{label}: --override-kv",
            found=repr(entry),
            expected="key=type:value, with type int, float, bool or str",
            fix="correct the entry",
        ) from None


def _note_factor(out: EngineSettings) -> None:
    factor = out.value("factor")
    if factor is not None and factor < 1:
        flag = out.numbers["factor"].source.removesuffix(" (its inverse)")
        out.notes.append(
            f"{flag} is inverted: it speeds positions up by {1 / factor:g}, so the context "
            f"shrinks; {factor:g} where {1 / factor:g} is meant"
        )
    if out.value("kind") == "yarn" and factor is None:
        out.notes.append(
            "YaRN without --rope-scale: unless the model's file has a factor, nothing is "
            "stretched and longer contexts are plain extrapolation"
        )


def _koboldcpp(flags: Flags) -> EngineSettings:
    """``--ropeconfig SCALE [BASE]``; the second number is a word of its own."""
    out = EngineSettings("koboldcpp", flags.label, _model(flags))
    scale = _number(flags, "ropeconfig")
    assert scale is not None
    out.numbers["factor"] = Sourced(_inverse(scale), "--ropeconfig (its inverse)")
    for word in flags.words:
        try:
            base = float(word)
        except ValueError:
            continue
        out.numbers["base"] = Sourced(base, "--ropeconfig, second number")
    tokens = _number(flags, "contextsize", whole=True)
    if tokens is not None:
        out.numbers["context"] = Sourced(tokens, "--contextsize")
    out.numbers["kind"] = Sourced("linear", "rule of KoboldCpp")
    _note_factor(out)
    return out


_MODELFILE = re.compile(r"^[ \t]*PARAMETER[ \t]+\S+[ \t]+\S", re.MULTILINE | re.IGNORECASE)
_PARAMETERS: Mapping[str, str] = {
    "num_ctx": "context",
    "rope_frequency_base": "base",
    "rope_frequency_scale": "factor",
}


def _modelfile(text: str, label: str) -> EngineSettings:
    """Read an Ollama Modelfile: one instruction a line."""
    out = EngineSettings("ollama", label)
    for line in text.splitlines():
        parts = line.split("#", 1)[0].split()
        if len(parts) == 2 and parts[0].upper() == "FROM":
            out.model = parts[1]
        if len(parts) != 3 or parts[0].upper() != "PARAMETER" or parts[1] not in _PARAMETERS:
            continue
        flags = Flags(label, {parts[1]: parts[2]}, ())
        concept = _PARAMETERS[parts[1]]
        value = _number(flags, parts[1], whole=concept == "context")
        assert value is not None
        source = f"PARAMETER {parts[1]}"
        if concept == "factor":
            value, source = _inverse(value), f"{source} (its inverse)"
        out.numbers[concept] = Sourced(value, source)
    if "factor" in out.numbers:
        out.numbers["kind"] = Sourced("linear", "rule of llama.cpp without a scaling type")
    _note_factor(out)
    return out
