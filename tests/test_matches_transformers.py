"""Single precision with PyTorch positions is transformers' own arithmetic, bit for bit.

transformers computes what it reads from a `LlamaConfig`; nothing is downloaded. Each test
demands equal frequencies and equal cos and sin.
"""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from ropewalk import (
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    Plain,
    Proportional,
    Rope,
    YaRN,
    cos_sin,
    rotate,
)
from ropewalk.scaling.field import TorchFloat32

POSITIONS = torch.cat(
    [torch.arange(300), torch.tensor([1023, 4095, 4096, 8191, 32767, 131071, 999_983, 2**24 + 1])]
)[None]


def config(head_dim: int, parameters: dict, longest: int = 4096) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=2 * head_dim,
        num_attention_heads=2,
        head_dim=head_dim,
        max_position_embeddings=longest,
        rope_parameters=parameters,
    )


def upstream(module: LlamaRotaryEmbedding, positions: torch.Tensor):
    cos, sin = module(torch.zeros(1), positions)
    planes = cos.shape[-1] // 2
    assert torch.equal(cos[..., :planes], cos[..., planes:])
    return cos[..., :planes], sin[..., :planes]


def demand_equal(rope: Rope, module: LlamaRotaryEmbedding, positions=POSITIONS, length=None):
    want = upstream(module, positions)
    assert torch.equal(rope.frequencies_in(TorchFloat32(), length), module.inv_freq)
    assert rope.attention_factor(length) == module.attention_scaling
    for got, w in zip(
        cos_sin(rope, positions, length=length, precision="float32"), want, strict=True
    ):
        assert torch.equal(got, w)


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"factor": 4.0, "original_max_position_embeddings": 4096}
SPELLED = {"original_max_position_embeddings": "original_length"}

FIXED = [
    ("default", {}, Plain, 128, 10000.0),
    ("default", {}, Plain, 64, 500000.0),
    ("default", {}, Plain, 96, 1000000),
    ("default", {}, Plain, 256, 11158840.0),
    ("linear", {"factor": 8.0}, Linear, 128, 1e6),
    ("linear", {"factor": 3.7}, Linear, 80, 10000.0),
    ("linear", {"factor": 2}, Linear, 64, 10000),
    ("yarn", YARN, YaRN, 128, 1e6),
    ("yarn", {**YARN, "truncate": True}, YaRN, 64, 10000.0),
    ("yarn", {**YARN, "truncate": False, "factor": 32.0}, YaRN, 64, 150000.0),
    ("yarn", {**YARN, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0}, YaRN, 64, 1e4),
    ("yarn", {**YARN, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.707}, YaRN, 64, 1e4),
    ("yarn", {**YARN, "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0}, YaRN, 64, 1e4),
    ("yarn", {**YARN, "factor": 16, "mscale": 1.3}, YaRN, 64, 160000.0),
    ("yarn", {**YARN, "attention_factor": 1.25}, YaRN, 128, 1e4),
    (
        "yarn",
        {**YARN, "attention_factor": 1.0, "mscale": 2.0, "mscale_all_dim": 1.0},
        YaRN,
        64,
        1e4,
    ),
    ("yarn", {**YARN, "beta_fast": 20.5, "beta_slow": 2.25}, YaRN, 128, 1e7),
    ("yarn", {**YARN, "beta_fast": 4, "beta_slow": 1, "truncate": False}, YaRN, 32, 1e4),
    ("yarn", {"factor": 2.5, "original_max_position_embeddings": 6}, YaRN, 64, 1e4),
    ("yarn", {"factor": 1.0, "original_max_position_embeddings": 4096}, YaRN, 64, 1e4),
    ("llama3", {**LLAMA3, "original_max_position_embeddings": 8192}, Llama3, 128, 500000.0),
    (
        "llama3",
        {**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 8192},
        Llama3,
        64,
        500000.0,
    ),
    (
        "llama3",
        {
            "factor": 3,
            "low_freq_factor": 0.5,
            "high_freq_factor": 9.5,
            "original_max_position_embeddings": 100,
        },
        Llama3,
        96,
        12e6,
    ),
]


@pytest.mark.parametrize(
    ("kind", "parameters", "scaling", "head_dim", "theta"),
    FIXED,
    ids=[f"{row[0]}-{i}" for i, row in enumerate(FIXED)],
)
def test_scalings_of_fixed_frequencies(kind, parameters, scaling, head_dim, theta):
    made = {"rope_type": kind, "rope_theta": theta, **parameters}
    module = LlamaRotaryEmbedding(config(head_dim, made, longest=16384))
    fields = {SPELLED.get(key, key): value for key, value in parameters.items()}
    rope = Rope(head_dim=head_dim, theta=theta, scaling=scaling(**fields))
    demand_equal(rope, module)


@pytest.mark.parametrize("factor", [1.0, 2.0, 2, 3.7, 8.3])
@pytest.mark.parametrize("length", [1, 2047, 2048, 2049, 2050, 3001, 4096, 7919, 131072])
def test_dynamic_at_every_length(factor, length):
    """transformers holds the length in a tensor, so the base itself is single precision."""
    for head_dim, theta in ((128, 10000.0), (64, 1000000)):
        made = {"rope_type": "dynamic", "factor": factor, "rope_theta": theta}
        # A new module each time: the old one keeps the frequencies of its longest text.
        module = LlamaRotaryEmbedding(config(head_dim, made, longest=2048))
        rope = Rope(
            head_dim=head_dim,
            theta=theta,
            scaling=DynamicNTK(factor=factor, original_length=2048),
        )
        positions = torch.arange(max(0, length - 50), length)[None]
        demand_equal(rope, module, positions, length)
        # Without a length, it is the largest position plus one, as transformers has it.
        got = cos_sin(rope, positions, precision="float32")
        assert torch.equal(got[0], upstream(module, positions)[0])


def test_dynamic_of_transformers_depends_on_earlier_calls_and_ours_does_not():
    """The known difference: transformers keeps the frequencies of the longest text so far.

    They are only reset by a text shorter than the original length. A rope here depends on
    the length asked for and on nothing before it (huggingface/transformers#25104).
    """
    made = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    module = LlamaRotaryEmbedding(config(64, made, longest=2048))
    rope = Rope(head_dim=64, scaling=DynamicNTK(factor=2.0, original_length=2048))
    field = TorchFloat32()

    def theirs_after(length: int) -> torch.Tensor:
        upstream(module, torch.arange(length)[None])
        return module.inv_freq

    for asked, kept in ((5000, 5000), (3000, 5000), (2048, 5000), (2047, 2048), (3000, 3000)):
        assert torch.equal(theirs_after(asked), rope.frequencies_in(field, kept))


def longrope_lists(planes: int) -> tuple[list[float], list[float]]:
    return [1 + 0.03 * i for i in range(planes)], [1.08 + 1.37 * i for i in range(planes)]


@pytest.mark.parametrize("extra", [{"factor": 32.0}, {"attention_factor": 1.19}, {"factor": 1.0}])
def test_longrope_short_at_the_original_length_long_after_it(extra):
    short, long = longrope_lists(48)
    made = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": short,
        "long_factor": long,
        "original_max_position_embeddings": 4096,
        **extra,
    }
    rope = Rope(
        head_dim=96,
        scaling=LongRoPE(
            short_factor=tuple(short),
            long_factor=tuple(long),
            original_length=4096,
            # Without a factor transformers takes the ratio of the two lengths.
            factor=extra.get("factor", 32.0),
            attention_factor=extra.get("attention_factor"),
        ),
    )
    module = LlamaRotaryEmbedding(config(96, made, longest=131072))
    seen = []
    for length in (100, 4096, 4097, 9000, 4096):
        positions = torch.arange(length)[None, -64:]
        upstream(module, positions)
        demand_equal(rope, module, positions, length)
        # Without a length, it is the largest position plus one, as transformers has it.
        got = cos_sin(rope, positions, precision="float32")
        assert torch.equal(got[0], upstream(module, positions)[0])
        seen.append(module.inv_freq.clone())
    assert torch.equal(seen[1], seen[0])
    assert torch.equal(seen[1], seen[4])
    assert not torch.equal(seen[2], seen[1])
    assert torch.equal(seen[2], seen[3])


@pytest.mark.parametrize("share", [0.25, 0.5, 0.3, 1.0])
@pytest.mark.parametrize("factor", [None, 8.0])
def test_proportional(share, factor):
    made = {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": share}
    if factor is not None:
        made["factor"] = factor
    want, amplitude = ROPE_INIT_FUNCTIONS["proportional"](config(512, made))
    rope = Rope(head_dim=512, theta=1e6, scaling=Proportional(share=share, factor=factor or 1.0))
    got = rope.frequencies_in(TorchFloat32())
    assert torch.equal(got, want)
    assert rope.attention_factor() == amplitude
    assert rope.scaling.turning_planes(512) == int((want > 0).sum()) == int(share * 256)


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "llama3", "longrope"])
def test_partial_rotary(kind):
    """The shared functions read ``partial_rotary_factor``; the ladder is that of the part."""
    short, long = longrope_lists(10)
    parameters, scaling = {
        "linear": ({"factor": 4.0}, Linear(factor=4.0)),
        "dynamic": ({"factor": 4.0}, DynamicNTK(factor=4.0, original_length=4096)),
        "yarn": (YARN, YaRN(factor=4.0, original_length=4096)),
        "llama3": (
            {**LLAMA3, "original_max_position_embeddings": 2048},
            Llama3(**LLAMA3, original_length=2048),
        ),
        "longrope": (
            {
                "short_factor": short,
                "long_factor": long,
                "factor": 2.0,
                "original_max_position_embeddings": 4096,
            },
            LongRoPE(
                short_factor=tuple(short), long_factor=tuple(long), factor=2.0, original_length=4096
            ),
        ),
    }[kind]
    made = {"rope_type": kind, "rope_theta": 10000.0, "partial_rotary_factor": 0.25, **parameters}
    rope = Rope(head_dim=80, rotary_dim=20, scaling=scaling)
    # A grown length arrives as a tensor, as it does in the model's forward pass.
    for length in (None, 4096, 4097, 10001):
        text = None if length is None else torch.tensor(length)
        want, amplitude = ROPE_INIT_FUNCTIONS[kind](config(80, made), seq_len=text)
        got = rope.frequencies_in(TorchFloat32(), length)
        assert torch.equal(got, want)
        assert rope.attention_factor(length) == amplitude


def test_half_precision_tables_are_rounded_once_from_the_same_float32():
    made = {"rope_type": "yarn", "rope_theta": 10000.0, **YARN}
    module = LlamaRotaryEmbedding(config(64, made, longest=16384))
    rope = Rope(head_dim=64, scaling=YaRN(factor=4.0, original_length=4096))
    for dtype in (torch.bfloat16, torch.float16):
        cos, sin = module(torch.zeros(1, dtype=dtype), POSITIONS)
        got = cos_sin(rope, POSITIONS, precision="float32", dtype=dtype)
        assert torch.equal(got[0], cos[..., :32])
        assert torch.equal(got[1], sin[..., :32])


def test_the_rotation_of_llama():
    """huggingface/transformers' ``apply_rotary_pos_emb``, with float32 queries and keys."""
    made = {"rope_type": "default", "rope_theta": 10000.0}
    module = LlamaRotaryEmbedding(config(64, made))
    rope = Rope(head_dim=64)
    torch.manual_seed(0)
    q, k = torch.randn(2, 4, 300, 64), torch.randn(2, 1, 300, 64)
    positions = POSITIONS[:, :300]
    cos, sin = module(q, positions)
    want = apply_rotary_pos_emb(q, k, cos, sin)
    tables = cos_sin(rope, positions, precision="float32")
    for x, w in zip((q, k), want, strict=True):
        got = rotate(x, *tables, order="heads_time")
        # a cos - b sin here and a cos + (-b) sin there: the same two products, one sum.
        assert torch.equal(got, w)
