"""Text and protein encoders with one rope, and what was made of them."""

from __future__ import annotations

from ..family import Condition, Family, upstream

KEPT_IN_WEIGHTS = (
    "transformers keeps the frequencies in the checkpoint (rotary_embeddings.inv_freq) and loads "
    "them from it; described are those of the config"
)
_LEARNED = "learned absolute positions"

# fmt: off
ROWS: dict[str, Family] = {
    "esmc": upstream("EsmcConfig", 2560, 40, None, 80, None, 2048),
    "eurobert": upstream("EuroBertConfig", 768, 12, None, 12, None, 8192),
    "gte": upstream("GteConfig", 768, 12, None, 12, None, 8192, theta=160000.0),
    "jina_embeddings_v3": upstream(
        "JinaEmbeddingsV3Config", 1024, 16, None, 24, None, 8194, theta=20000.0,
    ),
    "nomic_bert": upstream("NomicBertConfig", 768, 12, None, 12, None, 2048, theta=1000.0),
    "esm": upstream(
        "EsmConfig", 768, 12, None, 12, None, 1026,
        condition=Condition("position_embedding_type", ("rotary",), "absolute", _LEARNED),
        only_default=True, remarks=(KEPT_IN_WEIGHTS,),
    ),
    "saprot": upstream(
        "SaProtConfig", 1280, 20, None, 33, None, 1026,
        condition=Condition("position_embedding_type", ("rotary",), "rotary", _LEARNED),
        only_default=True, remarks=(KEPT_IN_WEIGHTS,),
    ),
    "roformer": upstream(
        "RoFormerConfig", 768, 12, None, 12, None, 1536, pairing="adjacent", only_default=True,
        remarks=("with rotary_value the values are rotated too",),
    ),
    "evolla": upstream("EvollaConfig", 4096, 32, 8, 32, None, 8192, theta=5e5),
}
# fmt: on
