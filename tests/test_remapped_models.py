"""Methods by name, and those that remap distances in models of transformers."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch

from ropewalk import InputError, Rope
from ropewalk.encodings import ALiBi, DualChunk, Encoding, LogN, ReRoPE, Rotary, SelfExtend
from ropewalk.extend.loading import load
from ropewalk.extend.methods import METHODS, USUAL, method_named, methods_named
from ropewalk.extend.scoring import Scorer
from ropewalk.scaling import Plain, YaRN

ROPE = Rope(head_dim=16)
REMAPS = [name for name, method in METHODS.items() if method.remap is not None]
FLOAT32 = 2.0**-24


def tokens_of(length: int, rows: int = 2):
    return torch.randint(0, 256, (rows, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", METHODS)
def test_at_factor_one_every_method_is_plain(name: str) -> None:
    assert METHODS[name].setting(ROPE, 1, 192) == ROPE.with_scaling(Plain(original_length=192))


@pytest.mark.parametrize("multiple", [2, 3, 4, 8, 16, 32])
@pytest.mark.parametrize("original", [64, 192, 512, 4096])
def test_remapped_distances_are_such_as_were_trained(original: int, multiple: int) -> None:
    length = original * multiple
    for name in REMAPS:
        setting = METHODS[name].setting(ROPE, multiple, original)
        inner = setting.inner if isinstance(setting, LogN) else setting
        if isinstance(inner, Rotary):
            continue
        # The last query's distances to all keys, and those within the first chunk.
        for query in (length - 1, original - 1):
            relative = inner.relative([query], list(range(query + 1)))
            assert 0 <= relative.min() <= relative.max() < original, name
            # Neighbours keep their distance.
            assert relative[0, ::-1][: original // 4].tolist() == list(range(original // 4))


def test_self_extend_takes_the_smallest_group_that_fits() -> None:
    for multiple in (2, 4, 8, 32):
        taken = METHODS["self-extend"].setting(ROPE, multiple, 512)
        assert isinstance(taken, SelfExtend)
        smaller = SelfExtend(rope=ROPE, group=taken.group - 1, window=taken.window)
        last, keys = [512 * multiple - 1], list(range(512 * multiple))
        assert taken.relative(last, keys).max() <= 512 * 7 / 8
        assert smaller.relative(last, keys).max() > 512 * 7 / 8


def test_a_slope_may_follow_a_yarn() -> None:
    plain = METHODS["yarn"].rope(ROPE, 4, 512)
    for slope in (0, 0.1, 0.4):
        rope = method_named(f"yarn@{slope}").rope(ROPE, 4, 512)
        assert (rope.inv_freq() == plain.inv_freq()).all()
        assert rope.attention_factor() == 1 + slope * math.log(4)
    # The paper's slope, from other digits of the same formula.
    usual = method_named("yarn@0.1").rope(ROPE, 4, 512).attention_factor()
    assert usual == pytest.approx(plain.attention_factor(), rel=2**-50)
    ramp = method_named("yarn-rotations@0.2").rope(ROPE, 4, 512).scaling
    assert isinstance(ramp, YaRN)
    assert ramp.ramp == "rotations"
    assert method_named("yarn@0.2").rope(ROPE, 1, 512) == METHODS["yarn"].rope(ROPE, 1, 512)


@pytest.mark.parametrize(
    "name",
    ["magic", "magic@1", "@", "", "yarn@", "yarn@x", "yarn@-1", "yarn@nan", "yarn@inf",
     "linear@0.2", "rerope@0.2", "crop@1", "YaRN"],
)  # fmt: skip
def test_wrong_names_are_refused(name: str) -> None:
    with pytest.raises(InputError) as error:
        method_named(name)
    assert repr(name) in str(error.value)
    assert str(error.value).startswith("--methods: ")


def test_methods_come_in_the_tables_order_and_once() -> None:
    chosen = methods_named(["yarn@0.2", "dual-chunk", "yarn", "crop", "yarn", "yarn@0"])
    assert chosen[0].name == "crop"
    assert chosen[-1].name == "dual-chunk"
    assert sorted(m.name for m in chosen[1:-1]) == ["yarn", "yarn@0", "yarn@0.2"]
    assert set(USUAL) | set(REMAPS) | {"yarn-untruncated", "llama3"} == set(METHODS)
    assert [name for name, m in METHODS.items() if m.crops] == ["crop"]


def test_a_model_that_does_not_rotate_is_only_cropped() -> None:
    for name, method in METHODS.items():
        if name in ("crop", "none"):
            assert method.setting(ALiBi(), 4, 512) == ALiBi()
        else:
            with pytest.raises(InputError, match="only crop and none"):
                method.setting(ALiBi(), 4, 512)


def saved(model, folder: Path, tokenizer: Path) -> Path:
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / name)
    return folder


def close(ours, theirs) -> bool:
    """Log probabilities from sums of some hundred terms in another order, in float32."""
    return bool((ours - theirs).abs().max() <= 512 * FLOAT32 * theirs.abs().max())


UNCHANGED = {
    "a window that no distance reaches": ReRoPE(rope=ROPE, window=100),
    "a leak of one": ReRoPE(rope=ROPE, window=1, leak=1.0),
    "groups of one": SelfExtend(rope=ROPE, group=1, window=1),
    "far groups": SelfExtend(rope=ROPE, group=7, window=100),
    "one chunk": DualChunk(rope=ROPE, chunk=100, local=10),
    "a text within log-n's length": LogN(inner=Rotary(rope=ROPE), original_length=100),
    "both": LogN(inner=ReRoPE(rope=ROPE, window=100), original_length=100),
}


def llama(tiny_model: Path, layers: int):
    """The tiny model with so large projections that attention is far from even."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = json.loads((tiny_model / "config.json").read_text())
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(**{**config, "num_hidden_layers": layers}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "proj" in name:
                parameter *= 8
    return model


@pytest.fixture(scope="module")
def tiny(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    folder = tmp_path_factory.mktemp("sharp") / "model"
    return Scorer(load(saved(llama(tiny_model, 2), folder, tiny_model), dtype="float32"))


@pytest.mark.parametrize("case", UNCHANGED)
def test_what_changes_nothing_is_plain_rope(tiny: Scorer, case: str) -> None:
    tokens = tokens_of(100)
    plain, first = tiny.log_likelihoods(tokens, ROPE, 60, 100)
    ours, ours_first = tiny.log_likelihoods(tokens, UNCHANGED[case], 60, 100)
    assert close(ours, plain)
    assert (first == ours_first).double().mean() > 0.95
    # The model is left as it was.
    assert torch.equal(tiny.log_likelihoods(tokens, ROPE, 60, 100)[0], plain)


@pytest.mark.parametrize(
    "encoding",
    [ReRoPE(rope=ROPE, window=1), ReRoPE(rope=ROPE, window=30),
     SelfExtend(rope=ROPE, group=4, window=1), DualChunk(rope=ROPE, chunk=20, local=5),
     LogN(inner=Rotary(rope=ROPE), original_length=10)],
    ids=lambda e: e.kind,
)  # fmt: skip
def test_what_changes_something_is_not(tiny: Scorer, encoding: Encoding) -> None:
    tokens = tokens_of(100)
    plain, _ = tiny.log_likelihoods(tokens, ROPE, 60, 100)
    ours, _ = tiny.log_likelihoods(tokens, encoding, 60, 100)
    # A hundred times what rounding may make.
    assert (ours - plain).abs().max() > 51200 * FLOAT32 * plain.abs().max()


def turned(x, angles):
    """Lane i with lane i + 8, by an angle per plane."""
    a, b = x[..., :8], x[..., 8:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def by_hand(model, tokens, relative, temperature=lambda _: 1.0):
    """Log probabilities of a Llama of one layer, pair by pair, in float64."""
    w = {name: p.detach().double() for name, p in model.named_parameters()}
    layer = "model.layers.0."
    time = len(tokens)

    def norm(x, name):
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * w[name]

    x = w["model.embed_tokens.weight"][tokens]
    h = norm(x, layer + "input_layernorm.weight")
    q, k, v = (
        (h @ w[f"{layer}self_attn.{p}_proj.weight"].T).view(time, -1, 16) for p in ("q", "k", "v")
    )
    frequencies = 10000.0 ** -(torch.arange(8).double() / 8)
    mixed = torch.zeros(time, 4, 16, dtype=torch.float64)
    for head in range(4):
        of = head // 2  # two query heads share keys and values
        for i in range(time):
            scores = torch.stack(
                [
                    temperature(i) * turned(q[i, head], relative(i, j) * frequencies) @ k[j, of] / 4
                    for j in range(i + 1)
                ]
            )
            mixed[i, head] = scores.softmax(0) @ v[: i + 1, of]
    x = x + mixed.flatten(1) @ w[layer + "self_attn.o_proj.weight"].T
    h = norm(x, layer + "post_attention_layernorm.weight")
    gate = h @ w[layer + "mlp.gate_proj.weight"].T
    up = h @ w[layer + "mlp.up_proj.weight"].T
    x = x + (torch.nn.functional.silu(gate) * up) @ w[layer + "mlp.down_proj.weight"].T
    return (norm(x, "model.norm.weight") @ w["model.embed_tokens.weight"].T).log_softmax(-1)


def rerope(i: int, j: int) -> float:
    return min(i - j, 9)


def leaky(i: int, j: int) -> float:
    return i - j if i - j < 9 else 9 + (i - j - 9) / 4


def self_extend(i: int, j: int) -> float:
    return i - j if i - j < 9 else i // 4 - j // 4 + 9 - 9 // 4


def dual_chunk(i: int, j: int) -> float:
    if i // 10 == j // 10:
        return i - j
    # 13: a chunk of 10 and 4 local, less 1.
    return (min(i % 10 + 10, 13) if i // 10 == j // 10 + 1 else 13) - j % 10


BY_HAND = [
    (ReRoPE(rope=ROPE, window=9), rerope),
    (ReRoPE(rope=ROPE, window=9, leak=4.0), leaky),
    (SelfExtend(rope=ROPE, group=4, window=9), self_extend),
    (DualChunk(rope=ROPE, chunk=10, local=4), dual_chunk),
    (LogN(inner=ReRoPE(rope=ROPE, window=9), original_length=12), rerope),
]


@pytest.mark.parametrize(("encoding", "relative"), BY_HAND, ids=lambda v: getattr(v, "kind", ""))
def test_a_grouped_query_llama_equals_attention_written_out(
    tiny_model: Path, tmp_path: Path, encoding: Encoding, relative
) -> None:
    model = llama(tiny_model, 1)
    scorer = Scorer(load(saved(model, tmp_path / "one", tiny_model), dtype="float32"))
    tokens = tokens_of(33, rows=2)

    def temperature(i: int) -> float:
        return max(1.0, math.log(i + 1) / math.log(12)) if isinstance(encoding, LogN) else 1.0

    def written_out(*how):
        return torch.stack(
            [by_hand(model, row, *how)[:-1].gather(1, row[1:, None])[:, 0] for row in tokens]
        )

    ours, _ = scorer.log_likelihoods(tokens, encoding, 32, 33)
    plain, _ = scorer.log_likelihoods(tokens, ROPE, 32, 33)
    theirs = written_out(relative, temperature)
    assert close(ours, theirs)
    assert not close(plain, theirs)
    assert close(plain, written_out(lambda i, j: i - j))


def gemma(tmp_path: Path, tiny_model: Path, **more) -> Path:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(
        vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=6,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        max_position_embeddings=192, sliding_window=20, query_pre_attn_scalar=16, **more,
    )  # fmt: skip
    torch.manual_seed(0)
    return saved(Gemma3ForCausalLM(config), tmp_path / "gemma", tiny_model)


def test_layers_with_another_rope_are_left_alone(tmp_path: Path, tiny_model: Path) -> None:
    """Five of six layers have a window and a rope of their own."""
    scorer = Scorer(load(gemma(tmp_path, tiny_model), dtype="float32"))
    base = scorer.loaded.positions.rope
    assert base is not None
    tokens = tokens_of(100)
    plain, _ = scorer.log_likelihoods(tokens, base, 60, 100)
    same, _ = scorer.log_likelihoods(tokens, ReRoPE(rope=base, window=100), 60, 100)
    assert close(same, plain)
    assert scorer._remapped is not None
    assert scorer._remapped[0] == {5}
    changed, _ = scorer.log_likelihoods(tokens, ReRoPE(rope=base, window=2), 60, 100)
    assert not close(changed, plain)


def test_models_with_windows_are_refused(tmp_path: Path, tiny_model: Path) -> None:
    from transformers import MistralConfig, MistralForCausalLM

    config = json.loads((tiny_model / "config.json").read_text())
    for key in ("model_type", "architectures", "dtype"):
        config.pop(key, None)
    torch.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**config, sliding_window=24))
    scorer = Scorer(load(saved(model, tmp_path / "mistral", tiny_model), dtype="float32"))
    tokens = tokens_of(64)
    scorer.log_likelihoods(tokens, ROPE, 10, 64)
    with pytest.raises(InputError, match="a window in every rotating layer"):
        scorer.log_likelihoods(tokens, ReRoPE(rope=ROPE, window=9), 10, 64)


def test_windows_in_some_layers_of_one_rope_are_refused(tmp_path: Path, tiny_model: Path) -> None:
    """They would lose their positions, not keep them."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = json.loads((tiny_model / "config.json").read_text())
    for key in ("model_type", "architectures", "dtype"):
        config.pop(key, None)
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(**config, use_sliding_window=True, sliding_window=24, max_window_layers=1)
    )
    scorer = Scorer(load(saved(model, tmp_path / "qwen", tiny_model), dtype="float32"))
    windows = [layer.window for layer in scorer.loaded.positions.layers]
    assert windows == [None, 24]
    with pytest.raises(InputError, match="rescale frequencies"):
        scorer.log_likelihoods(tokens_of(64), ReRoPE(rope=ROPE, window=9), 10, 64)


def test_norms_after_the_rotation_are_refused(tmp_path: Path, tiny_model: Path) -> None:
    """HunYuan norms queries and keys after it turned them: attention cannot turn them later."""
    from transformers import HunYuanDenseV1Config, HunYuanDenseV1ForCausalLM

    config = json.loads((tiny_model / "config.json").read_text())
    for key in ("model_type", "architectures", "dtype"):
        config.pop(key, None)
    torch.manual_seed(0)
    model = HunYuanDenseV1ForCausalLM(HunYuanDenseV1Config(**config))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "query_layernorm" in name or "key_layernorm" in name:
                parameter.copy_(torch.linspace(0.2, 2.0, 16))
    scorer = Scorer(load(saved(model, tmp_path / "hunyuan", tiny_model), dtype="float32"))
    with pytest.raises(InputError, match="differ from the model's own"):
        scorer.log_likelihoods(tokens_of(64), ReRoPE(rope=ROPE, window=9), 10, 64)
