"""Small functions that rows of the family table need: layer patterns, old keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Values = Mapping[str, Any]
Kinds = Callable[[Values, int], list[str]]

FULL, LOCAL, LINEAR = "full_attention", "sliding_attention", "linear_attention"


def per_kind(**kinds: Any) -> dict[str, Any]:
    """Build a rope block per layer type: a base, a base and a share, or a whole block."""
    out: dict[str, Any] = {}
    for kind, given in kinds.items():
        if isinstance(given, Mapping):
            out[kind] = dict(given)
        elif isinstance(given, tuple):
            base, share = given
            out[kind] = {
                "rope_type": "default",
                "rope_theta": base,
                "partial_rotary_factor": share,
            }
        else:
            base = float(given) if isinstance(given, int) else given
            out[kind] = {"rope_type": "default", "rope_theta": base}
    return out


def all_of(kind: str) -> Kinds:
    """Every layer is of one kind."""
    return lambda _, count: [kind] * count


def flint_kinds(_: Values, count: int) -> list[str]:
    """The first two, every fourth from the second on, and the last layer are full."""
    return [FULL if i < 2 or i % 4 == 1 or i == count - 1 else LOCAL for i in range(count)]


def beam_kinds(_: Values, count: int) -> list[str]:
    """Every sixth layer and the last one are full."""
    return [FULL if (i + 1) % 6 == 0 or i == count - 1 else LOCAL for i in range(count)]


def lara_kinds(_: Values, count: int) -> list[str]:
    """A period of five: linear, sliding, linear, full, sliding."""
    period = (LINEAR, LOCAL, LINEAR, FULL, LOCAL)
    return [period[i % 5] for i in range(count)]


def lfm3_kinds(_: Values, count: int) -> list[str]:
    """Every fourth layer full, every fourth sliding, convolutions between."""
    return [FULL if i % 4 == 2 else LOCAL if i % 4 == 0 and i > 0 else "conv" for i in range(count)]


def mimo_kinds(_: Values, count: int) -> list[str]:
    """The first and every sixth layer are full."""
    return [FULL if i == 0 or (i + 1) % 6 == 0 else LOCAL for i in range(count)]


def dots3_kinds(_: Values, count: int) -> list[str]:
    """The first two and every fourth layer are indexed."""
    return ["indexed_attention" if i < 2 or i % 4 == 1 else LOCAL for i in range(count)]


def qwen4_kinds(_: Values, count: int) -> list[str]:
    """Every fourth layer is indexed attention, the others are linear."""
    return ["indexed_attention" if i % 4 == 3 else LINEAR for i in range(count)]


def from_the_end(_: Values, count: int) -> list[str]:
    """Every fourth layer is full, counted back from the last."""
    return [FULL if (count - 1 - i) % 4 == 0 else LOCAL for i in range(count)]


def v4_kinds(values: Values, count: int) -> list[str]:
    """DeepSeek-V4: two heavily compressed layers, then sparse and heavy in turn."""
    ratios = values.get("compress_ratios")
    names = {0: LOCAL, 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
    known = isinstance(ratios, list) and all(type(r) is int and r in names for r in ratios)
    if isinstance(ratios, list) and known and len(ratios) >= count:
        return [names[ratio] for ratio in ratios[:count]]
    heavy, sparse = names[128], names[4]
    return [heavy if i < 2 or i % 2 == 0 else sparse for i in range(count)]


def recurrent_kinds(values: Values, count: int) -> list[str]:
    """RecurrentGemma: ``block_types`` over and over; its attention sees a window."""
    blocks = values.get("block_types")
    known = {"recurrent": "recurrent", "attention": LOCAL}
    listed = (
        isinstance(blocks, list)
        and blocks
        and all(isinstance(b, str) and b in known for b in blocks)
    )
    period = blocks if isinstance(blocks, list) and listed else ["recurrent"] * 2 + ["attention"]
    return [known[period[i % len(period)]] for i in range(count)]


def zamba2_kinds(values: Values, count: int) -> list[str]:
    """Zamba2: the layers in ``hybrid_layer_ids`` have attention."""
    listed = values.get("hybrid_layer_ids")
    default = [6, 12, 18, 24, 30, 36, 42, 47, 51]
    hybrid = listed if isinstance(listed, list) else default
    return ["hybrid" if i in hybrid else LINEAR for i in range(count)]


def unfold(key: str) -> Callable[[Values], Values]:
    """Bring the entries of an inner object up, under ``key.entry``."""

    def prepare(values: Values) -> Values:
        inner = values.get(key)
        if not isinstance(inner, Mapping):
            return values
        return {**values, **{f"{key}.{name}": found for name, found in inner.items()}}

    return prepare


def zamba2_head(values: Values) -> Values:
    """Zamba2's attention runs on twice the hidden size; ``attention_head_dim`` says so."""
    hidden, heads = values.get("hidden_size", 2560), values.get("num_attention_heads", 32)
    if values.get("attention_head_dim") is None and type(hidden) is type(heads) is int and heads:
        return {**values, "attention_head_dim": 2 * hidden // heads}
    return values


def speech_encoder(values: Values) -> Values:
    """SeamlessM4T: the length in the config is that of the text models."""
    return {key: v for key, v in values.items() if key != "max_position_embeddings"}


def neomme_windows(values: Values) -> Values:
    """NeoMME: every other sliding layer has the long window, 1024 by default."""
    count, kinds = values.get("num_hidden_layers", 17), values.get("layer_types")
    if "per_layer_config" in values or type(count) is not int or not 0 < count <= 10_000:
        return values
    kinds = kinds if isinstance(kinds, list) else beam_kinds(values, count)
    sliding = [index for index, kind in enumerate(kinds) if kind == LOCAL]
    long = values.get("default_long_sliding_window", 1024)
    return {**values, "per_layer_config": {str(i): {"sliding_window": long} for i in sliding[1::2]}}


def clvp_lanes(values: Values) -> Values:
    """CLVP rotates max(projection_dim / (2 heads), 32) lanes of every head."""
    projected, heads = values.get("projection_dim", 768), values.get("num_attention_heads", 12)
    if not type(projected) is type(heads) is int or heads < 1:
        return values
    return {**values, "projection_dim // (2 * heads)": max(projected // (2 * heads), 32)}


def dory_pairs(values: Values) -> Values:
    """Dory: files list attention and mlp as layers of their own; a pair of them is one layer."""
    kinds, count = values.get("layer_types"), values.get("num_hidden_layers")
    if not isinstance(kinds, list) or "mlp" not in kinds or type(count) is not int:
        return values
    return {**values, "layer_types": kinds[::2], "num_hidden_layers": count // 2}


def glm5_head(values: Values) -> Values:
    """GLM 5 Next: a head is its unrotated lanes; ``head_dim``, the rotated ones, is 0."""
    return {**values, "head_dim": values.get("qk_nope_head_dim", 256)}


def dots3_windowed(values: Values) -> Values:
    """Dots 3: windowed layers have heads of 192 unrotated lanes; old names of layer types."""
    count = values.get("num_hidden_layers", 46)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= 10_000:
        return values
    kinds = values.get("layer_types")
    named = {FULL: "indexed_attention"} if "per_layer_config" not in values else {}
    if not isinstance(kinds, list):
        kinds = dots3_kinds(values, count)
    kinds = [named.get(kind, kind) if isinstance(kind, str) else kind for kind in kinds]
    made: dict[str, Any] = {**values, "layer_types": kinds}
    if "per_layer_config" not in values:
        lanes = values.get("swa_qk_nope_head_dim", 192)
        windowed = [index for index, kind in enumerate(kinds) if kind == LOCAL]
        made["per_layer_config"] = {str(i): {"qk_nope_head_dim": lanes} for i in windowed}
    return made


def deepseek_v4_blocks(values: Values) -> Values:
    """Old V4 configs: one flat block for compressed layers, two bases at the top."""
    block = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(block, Mapping) or isinstance(block.get("main"), Mapping):
        return values
    head, rotated = values.get("head_dim", 512), values.get("qk_rope_head_dim")
    share = values.get("partial_rotary_factor")
    if share is None:
        whole = type(head) is type(rotated) is int and head
        share = rotated / head if whole and isinstance(rotated, int) else 0.125
    compress = {
        "rope_type": "default",
        **{key: found for key, found in block.items() if key not in ("main", "compress")},
        "rope_theta": values.get("compress_rope_theta") or 160000.0,
        "partial_rotary_factor": share,
    }
    if compress.get("rope_type") == "yarn" or compress.get("type") == "yarn":
        compress["rope_type"] = "yarn"
        compress.setdefault("attention_factor", 1.0)
    main = {
        "rope_type": "default",
        "rope_theta": values.get("rope_theta") or 10000.0,
        "partial_rotary_factor": share,
    }
    dropped = ("rope_scaling", "rope_theta", "partial_rotary_factor")
    kept = {key: found for key, found in values.items() if key not in dropped}
    return {**kept, "rope_parameters": {"main": main, "compress": compress}}


def step3p5_lists(values: Values) -> Values:
    """Step 3.5: old configs list base and share of every layer; a scaling is for full ones."""
    thetas, shares = values.get("rope_theta"), values.get("partial_rotary_factors")
    kinds = values.get("layer_types")
    block = values.get("rope_parameters")
    nested = isinstance(block, Mapping) and any(isinstance(v, Mapping) for v in block.values())
    if nested or not (isinstance(thetas, list) or isinstance(shares, list)):
        return values
    if not isinstance(kinds, list):
        return values
    blocks: dict[str, Any] = {}
    for index, kind in enumerate(kinds):
        if not isinstance(kind, str) or kind in blocks:
            continue
        made: dict[str, Any] = {"rope_type": "default"}
        base = thetas[index] if isinstance(thetas, list) and index < len(thetas) else thetas
        if base is not None:
            made["rope_theta"] = base
        if isinstance(shares, list) and index < len(shares):
            made["partial_rotary_factor"] = shares[index]
        scaling = values.get("rope_scaling")
        if kind == FULL and isinstance(scaling, Mapping):
            made.update(scaling)
        blocks[str(kind)] = made
    dropped = ("rope_theta", "partial_rotary_factors", "rope_scaling", "rope_parameters")
    kept = {key: found for key, found in values.items() if key not in dropped}
    return {**kept, "rope_parameters": blocks}


def ultrabert_lists(values: Values) -> Values:
    """UltraBERT: old configs list the window and the base of every layer."""
    windows, thetas = values.get("attention_windows"), values.get("rope_theta")
    out = dict(values)
    if isinstance(windows, list):
        out.setdefault("layer_types", [LOCAL if window else FULL for window in windows])
        out["sliding_window"] = next((w for w in windows if w), values.get("sliding_window"))
    kinds = out.get("layer_types")
    if isinstance(thetas, list) and isinstance(kinds, list):
        del out["rope_theta"]
        pairs = zip(kinds, thetas, strict=False)
        out["rope_parameters"] = per_kind(**{str(kind): base for kind, base in pairs})
    return out
