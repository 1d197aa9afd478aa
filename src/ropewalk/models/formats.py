"""The table of foreign formats, and how each is recognised by the keys that it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from .flat_file import flatten
from .flat_format import FlatFormat
from .megatron_formats import GPT_NEOX, MEGATRON
from .other_formats import CONTRASTORS, KERAS, MAXTEXT, NANOTRON, OLMO, TURBOMIND
from .params_formats import DEEPSEEK, EXECUTORCH, GPT_OSS, LITGPT, META, MISTRAL, TORCHCHAT


@dataclass(frozen=True)
class Signature:
    """The keys by which a format is told.

    Attributes:
        row: the format.
        needs: groups of keys; of every group the file has at least one.
        without: keys that the file does not have.
    """

    row: FlatFormat
    needs: tuple[tuple[str, ...], ...]
    without: tuple[str, ...] = ()

    def matches(self, keys: Mapping[str, Any]) -> bool:
        """Tell whether a flattened file has the keys."""
        return all(any(key in keys for key in group) for group in self.needs) and not any(
            key in keys for key in self.without
        )


_EXECUTORCH = ("use_hf_rope", "model_architecture")
_TORCHCHAT = ("rope_base", "block_size", "n_local_heads")
_YARN = ("yarn", "llama_4_scaling")
_MISTRAL = ("yarn", "llama_4_scaling", "sliding_window", "hidden_dim", "head_dim", "moe")
_META = ("use_scaled_rope", "multiple_of", "ffn_dim_multiplier", "nope_layer_interval")
_HF = ("model_type", "architectures", "text_config")
_LATENT = ("qk_rope_head_dim",)

SIGNATURES: tuple[Signature, ...] = (
    Signature(GPT_OSS, (("initial_context_length",),), _HF),
    Signature(EXECUTORCH, (("dim",), ("n_layers",), _EXECUTORCH)),
    Signature(TORCHCHAT, (("n_layers",), ("dim",), _TORCHCHAT), _EXECUTORCH),
    Signature(TORCHCHAT, (("text.num_layers",), ("text.rope_base", "text.embed_dim"))),
    Signature(
        DEEPSEEK, (("dim",), ("n_layers",), _LATENT), ("head_dim", "yarn", "hidden_dim")
    ),
    Signature(
        MISTRAL,
        (("dim",), ("n_layers",), ("head_dim", "yarn", "hidden_dim"), _LATENT),
        _EXECUTORCH,
    ),
    Signature(
        MISTRAL,
        (("dim",), ("n_layers",), _MISTRAL),
        (*_EXECUTORCH, *_TORCHCHAT, *_META, *_LATENT),
    ),
    Signature(
        MISTRAL, (("dim",), ("n_layers",), _YARN), (*_EXECUTORCH, *_TORCHCHAT, *_LATENT)
    ),
    Signature(MISTRAL, (_YARN,), ("dim", *_HF)),
    Signature(META, (("dim",), ("n_layers",), _META), (*_EXECUTORCH, *_TORCHCHAT, *_YARN)),
    Signature(
        META,
        (("dim",), ("n_layers",), ("n_heads",)),
        (*_EXECUTORCH, *_TORCHCHAT, *_MISTRAL, *_META, *_LATENT),
    ),
    Signature(
        LITGPT,
        (("n_layer",), ("rotary_percentage", "rope_condense_ratio", "n_query_groups")),
        _HF,
    ),
    Signature(MAXTEXT, (("base_emb_dim", "base_num_decoder_layers", "rope_max_timescale"),)),
    Signature(NANOTRON, (("num_hidden_layers",), ("rope_interleaved", "no_rope_layer")), _HF),
    Signature(OLMO, (("d_model",), ("n_layers",), ("rope", "alibi_bias_max"))),
    Signature(TURBOMIND, (("head_num",), ("size_per_head",))),
    Signature(KERAS, (("max_wavelength", "rope_max_wavelength"),)),
    Signature(CONTRASTORS, (("rotary_emb_fraction",), ("model_name",)), ("architectures",)),
    Signature(
        GPT_NEOX, (("num_layers",), ("rotary_pct", "pos_emb", "rotary_emb_base")), _HF
    ),
    Signature(
        MEGATRON,
        (
            ("hidden_size",),
            (
                "rotary_base", "rotary_percent", "rotary_percentage", "position_embedding_type",
                "use_rotary_position_embeddings", "rotary_interleaved", "qk_pos_emb_head_dim",
                "seq_len_interpolation_factor", "num_query_groups",
            ),
        ),
        (*_HF, "rotary_pct", "pos_emb", "num_hidden_layers"),
    ),
)  # fmt: skip
"""Every foreign format by its keys. A file that fits two is refused."""

# Where programs keep the settings of the model within their own file.
_INNER = (
    ("model", "model_config"),
    ("model_config",),
    ("model",),
    ("backbone",),
)


def recognise(values: Mapping[str, Any], label: str) -> tuple[FlatFormat, Mapping[str, Any]] | None:
    """Return the format of a file and the part of it that describes the model.

    None where it is none of the table (it may be a config of transformers).

    Raises:
        InputError: the keys fit two formats.
    """
    for path in ((), *_INNER):
        part: Any = values
        for key in path:
            part = part.get(key) if isinstance(part, Mapping) else None
        if not isinstance(part, Mapping):
            continue
        keys = {key: value for key, value in flatten(part, label).items() if value is not None}
        rows = {s.row.name: s.row for s in SIGNATURES if s.matches(keys)}
        if len(rows) > 1:
            raise InputError(
                label,
                found="keys of the formats " + " and ".join(rows),
                expected="the settings of one program",
                fix="remove what is not meant",
            )
        if rows:
            return next(iter(rows.values())), part
    return None
