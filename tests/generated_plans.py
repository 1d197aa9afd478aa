"""Generated position plans: for each target, what it can say, and nothing else."""

from __future__ import annotations

from hypothesis import strategies as st

from ropewalk import Linear, Llama3, LongRoPE, Plain, Rope, YaRN
from ropewalk.models.plan import LayerPositions, ModelPositions, QueryTemperature
from ropewalk.scaling import DynamicNTK

thetas = st.one_of(
    st.sampled_from([10000.0, 500000.0, 1e6, 150000.0, 1e9]),
    st.integers(2, 10**9).map(float),
    st.floats(100, 1e9, allow_nan=False),
)
# A float32 keeps seven digits: such bases and factors come back from a GGUF file as they were.
short_thetas = st.integers(100, 999999).map(float)
lengths = st.integers(16, 2**20)
factors = st.one_of(st.integers(1, 64).map(float), st.floats(1, 100, allow_nan=False))
any_original = st.one_of(st.none(), lengths)
head_dims = st.sampled_from([4, 8, 32, 64, 96, 128, 256])


@st.composite
def partial(draw, head_dim):
    return 2 * draw(st.integers(1, head_dim // 2))


def plains(stated):
    return st.just(Plain(original_length=stated))


def linears(_stated, factor=factors, original=any_original):
    return st.builds(Linear, factor=factor, original_length=original)


def dynamics(stated):
    return st.builds(DynamicNTK, factor=factors, original_length=st.just(stated))


@st.composite
def yarns(draw, _stated=None, *, amplitudes=True, rounding=(None, True, False), betas=True):
    values = {
        "factor": draw(factors),
        "original_length": draw(lengths),
        "truncate": draw(st.sampled_from(rounding)),
    }
    if betas:
        slow = draw(st.floats(0.25, 8))
        values |= {"beta_slow": slow, "beta_fast": slow + draw(st.floats(0.25, 60))}
    if amplitudes:
        values |= draw(
            st.sampled_from(
                [
                    {},
                    {"attention_factor": 1.0},
                    {"attention_factor": 1.375},
                    {"mscale": 0.707, "mscale_all_dim": 1.0},
                    {"mscale": 1.0, "mscale_all_dim": 0.5},
                ]
            )
        )
    return YaRN(**values)


@st.composite
def llama3s(draw, _stated=None, *, bounds=True, length=None):
    low = draw(st.floats(0.5, 4)) if bounds else 1.0
    return Llama3(
        factor=draw(factors),
        low_freq_factor=low,
        high_freq_factor=low + draw(st.floats(0, 8)) if bounds else 4.0,
        original_length=draw(lengths) if length is None else length,
    )


@st.composite
def longropes(draw, planes):
    divisors = st.lists(st.floats(1, 60), min_size=planes, max_size=planes).map(tuple)
    return LongRoPE(
        short_factor=draw(divisors),
        long_factor=draw(divisors),
        factor=draw(factors),
        original_length=draw(lengths),
        attention_factor=draw(st.sampled_from([None, 1.0, 1.19])),
    )


@st.composite
def sizes(draw):
    groups = draw(st.sampled_from([1, 2, 4]))
    kv = draw(st.integers(1, 8))
    return {"heads": groups * kv, "kv_heads": kv}


def plan_of(layers, stated, counts, *, form="hf", model_type="llama", value_dim=None):
    """A plan from (kind, rope, window[, temperature]) per layer."""
    built = []
    for index, (kind, rope, window, *rest) in enumerate(layers):
        tempered = rest[0] if rest else None
        multiplier = 1.0
        if rope is not None and rope.rotary_offset and isinstance(rope.scaling, YaRN):
            multiplier = rope.scaling.softmax_multiplier()
        built.append(LayerPositions(index, kind, rope, window, multiplier, tempered))
    plan = ModelPositions(
        path="generated", format=form, model_type=model_type, layers=tuple(built),
        original_length=None, stated_length=stated, value_dim=value_dim, sources={}, **counts,
    )  # fmt: skip
    rope = plan.rope
    return ModelPositions(
        **{
            **{name: getattr(plan, name) for name in plan.__dataclass_fields__},
            "original_length": None if rope is None else rope.original_length,
            "value_dim": value_dim if value_dim is not None else layers[0][1].head_dim,
        }
    )


@st.composite
def uniform(draw, ropes, *, model_type="llama", form="hf", windows=(None,), stated=lengths):
    """All layers alike: the rope is drawn for a stated length."""
    length = draw(stated)
    rope = draw(ropes(length))
    window = draw(st.sampled_from(windows))
    kind = "full_attention" if window is None else "sliding_attention"
    count = draw(st.integers(1, 5))
    layers = [(kind, rope, window)] * count
    return plan_of(layers, length, draw(sizes()), form=form, model_type=model_type)


def ropes_with(*scalings, pairing="half", parted=False, theta=thetas, direction=1):
    """A function from the stated length to ropes with one of the scalings."""

    @st.composite
    def made(draw, stated):
        head_dim = draw(head_dims)
        rotary_dim = draw(partial(head_dim)) if parted else head_dim
        scaling = draw(draw(st.sampled_from(scalings))(stated))
        if isinstance(scaling, DynamicNTK) and rotary_dim < 4:
            scaling = Plain(original_length=stated)
        return Rope(
            head_dim=head_dim, rotary_dim=rotary_dim, theta=draw(theta), pairing=pairing,
            scaling=scaling, direction=direction,
        )  # fmt: skip

    return made


@st.composite
def latents(draw, scalings, *, model_type="deepseek_v3", form="hf", pairings=("adjacent", "half")):
    """Latent attention; YaRN with mscale_all_dim also multiplies the softmax."""
    stated = draw(lengths)
    rotated = 2 * draw(st.integers(1, 32))
    unrotated = draw(st.integers(1, 128))
    rope = Rope(
        head_dim=unrotated + rotated, rotary_dim=rotated, rotary_offset=unrotated,
        theta=draw(thetas), pairing=draw(st.sampled_from(pairings)),
        scaling=draw(draw(st.sampled_from(scalings))(stated)),
    )  # fmt: skip
    layers = [("full_attention", rope, None)] * draw(st.integers(1, 4))
    counts = draw(sizes())
    value = draw(st.integers(1, 256))
    return plan_of(layers, stated, counts, form=form, model_type=model_type, value_dim=value)


@st.composite
def two_kinds(draw, *, model_type="gemma3_text", form="hf", theta=thetas, scalings=None):
    """Windowed layers with a base of their own, unscaled; the others stretched."""
    stated = draw(lengths)
    head_dim = draw(head_dims)
    scaling = draw(draw(st.sampled_from(scalings or [plains, linears, yarns, llama3s]))(stated))
    full = Rope(head_dim=head_dim, theta=draw(theta), scaling=scaling)
    local = Rope(head_dim=head_dim, theta=draw(theta), scaling=Plain(original_length=stated))
    window = draw(st.integers(1, 8192))
    flags = draw(st.lists(st.booleans(), min_size=2, max_size=8).filter(lambda f: len(set(f)) > 1))
    layers = [
        ("sliding_attention", local, window) if flag else ("full_attention", full, None)
        for flag in flags
    ]
    return plan_of(layers, stated, draw(sizes()), form=form, model_type=model_type)


@st.composite
def some_without_rope(draw, ropes, *, model_type="smollm3", form="hf"):
    """Layers of which some have no rope."""
    stated = draw(lengths)
    rope = draw(ropes(stated))
    flags = draw(st.lists(st.booleans(), min_size=2, max_size=8).filter(any))
    layers = [("full_attention", rope if flag else None, None) for flag in flags]
    return plan_of(
        layers, stated, draw(sizes()), form=form, model_type=model_type, value_dim=rope.head_dim
    )


@st.composite
def tempered(draw, *, model_type="ministral3", form="hf", pairing="half", scaling=None):
    """YaRN, and queries that grow with the position."""
    stated = draw(lengths)
    rope = Rope(
        head_dim=draw(head_dims), theta=draw(thetas), pairing=pairing,
        scaling=draw(yarns() if scaling is None else scaling),
    )  # fmt: skip
    beta = draw(st.floats(0.01, 2))
    query = QueryTemperature(beta, rope.original_length)
    layers = [("full_attention", rope, None, query)] * draw(st.integers(1, 4))
    return plan_of(layers, stated, draw(sizes()), form=form, model_type=model_type)
