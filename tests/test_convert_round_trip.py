"""Write, read: the same plan again, for generated plans within what each target can say."""

from __future__ import annotations

import dataclasses
import json
import shlex

import pytest
from generated_plans import (
    dynamics,
    factors,
    latents,
    linears,
    llama3s,
    longropes,
    plains,
    ropes_with,
    short_thetas,
    some_without_rope,
    tempered,
    two_kinds,
    uniform,
    yarns,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ropewalk import Plain, Rope, YaRN
from ropewalk.convert.convert import convert
from ropewalk.convert.document import Options
from ropewalk.models.flags import split_flags
from ropewalk.models.plan import LayerPositions
from ropewalk.models.read import read, read_any, read_text

COMPARED = ("stated_length", "original_length", "heads", "kv_heads", "value_dim", "layers")
many = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

KINDS = (plains, linears, dynamics, yarns, llama3s)
WHOLE = {
    "llama": uniform(ropes_with(*KINDS)),
    "partial, adjacent": uniform(
        ropes_with(*KINDS, pairing="adjacent", parted=True), model_type="glm4"
    ),
    "partial, half": uniform(ropes_with(*KINDS, parted=True), model_type="stablelm"),
    "reversed": uniform(ropes_with(*KINDS, direction=-1), model_type="nanochat"),
    "windowed": uniform(ropes_with(*KINDS), model_type="mistral", windows=(None, 1, 4096)),
    "latent": latents((plains, linears, yarns)),
    "no rope": some_without_rope(ropes_with(*KINDS)),
    "tempered": tempered(),
}


def same(plan, found):
    """Everything that positions are, exactly."""
    for name in COMPARED:
        assert getattr(found, name) == getattr(plan, name), name


def written(plan, target, **options):
    done = convert(plan, target, options=Options(**options))
    assert done.lost == ()
    # Writing what was read gives the same text: nothing drifts.
    assert convert(plan, target, options=Options(**options)).text == done.text
    return done.text


def put(folder, text, name="config.json"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("target", ["hf", "hf4", "mlx"])
@pytest.mark.parametrize("name", WHOLE)
@many
@given(data=st.data())
def test_configs(tmp_path, target, name, data):
    plan = data.draw(WHOLE[name])
    if target == "mlx":
        # mlx-lm's YaRN rounds always and has one amplitude: such plans are refused, not lost.
        plan = _within_mlx(plan)
    found = read(put(tmp_path, written(plan, target)))
    same(plan, found)
    assert found.format == ("mlx" if target == "mlx" else "hf")


def _within_mlx(plan):
    def plainer(layer):
        if layer.rope is None or not isinstance(layer.rope.scaling, YaRN):
            return layer
        scaling = dataclasses.replace(
            layer.rope.scaling,
            truncate=None,
            attention_factor=None,
            mscale=None,
            mscale_all_dim=None,
        )
        return dataclasses.replace(
            layer, rope=layer.rope.with_scaling(scaling), softmax_multiplier=1.0
        )

    return dataclasses.replace(plan, layers=tuple(plainer(layer) for layer in plan.layers))


@many
@given(plan=two_kinds())
def test_layer_kinds_of_a_new_config(tmp_path, plan):
    same(plan, read(put(tmp_path, written(plan, "hf"))))


@many
@given(plan=two_kinds())
def test_layer_kinds_of_an_old_config(tmp_path, plan):
    same(plan, read(put(tmp_path, written(plan, "hf4"))))


@many
@given(data=st.data(), head_dim=st.sampled_from([4, 8, 64]))
def test_longrope(tmp_path, data, head_dim):
    def ropes(_stated):
        return st.builds(
            Rope, head_dim=st.just(head_dim), theta=st.just(1e4), scaling=longropes(head_dim // 2)
        )

    plan = data.draw(uniform(ropes, model_type="phi3"))
    for target in ("hf", "hf4"):
        same(plan, read(put(tmp_path, written(plan, target))))


@pytest.mark.parametrize("target", ["vllm", "sglang"])
@many
@given(data=st.data())
def test_overrides_of_a_config(tmp_path, target, data):
    kinds = (plains, linears, llama3s) + ((yarns,) if target == "vllm" else ())
    plan = data.draw(uniform(ropes_with(*kinds)))
    base = {
        "model_type": "llama",
        "hidden_size": plan.heads * plan.rope.head_dim,
        "num_attention_heads": plan.heads,
        "num_key_value_heads": plan.kv_heads,
        "num_hidden_layers": len(plan.layers),
        "max_position_embeddings": plan.stated_length,
        "rope_theta": 12345.0,
    }
    text = written(plan, target, base=base)
    found = read_any(put(tmp_path, json.dumps(base)), engine_args=text)
    same(plan, found)


@many
@given(data=st.data())
def test_flags_of_llama_cpp(tmp_path, data):
    whole = st.sampled_from([1.5, 2.0, 4.0, 8.0, 32.0])

    def stretched(stated):
        return st.builds(YaRN, factor=whole, original_length=st.just(stated))

    plan = data.draw(
        uniform(
            ropes_with(
                plains,
                lambda stated: linears(stated, whole, st.just(stated)),
                stretched,
                theta=short_thetas,
            )
        )
    )
    text = written(plan, "llama.cpp")
    unstretched = tuple(
        dataclasses.replace(
            layer, rope=layer.rope.with_scaling(Plain(original_length=plan.stated_length))
        )
        for layer in plan.layers
    )
    base = dataclasses.replace(plan, layers=unstretched)
    same(plan, read_any(put(tmp_path, convert(base, "hf").text), engine_args=text))


@many
@given(data=st.data())
def test_metadata_of_gguf(data):
    exact = st.sampled_from([1.5, 2.0, 4.0, 8.0, 40.0])
    simple = yarns(amplitudes=False, rounding=(None,), betas=False).map(
        lambda s: dataclasses.replace(s, factor=float(round(s.factor)))
    )
    kinds = (
        plains,
        lambda stated: linears(stated, exact),
        lambda _: simple,
    )
    plan = data.draw(
        st.one_of(
            uniform(ropes_with(*kinds, pairing="adjacent", theta=short_thetas), form="gguf"),
            uniform(
                ropes_with(*kinds, parted=True, theta=short_thetas),
                form="gguf",
                model_type="stablelm",
            ),
            two_kinds(form="gguf", model_type="gemma3", theta=short_thetas, scalings=list(kinds)),
            latents(kinds[:2], form="gguf", model_type="deepseek2", pairings=("adjacent",)),
        )
    )
    found = read_text(written(plan, "gguf-kv"))
    # A factor of 1 is no scaling in these files.
    same(_without_factor_one(plan), _without_factor_one(found))


def _without_factor_one(plan):
    def plainer(layer: LayerPositions):
        if layer.rope is None or layer.rope.scaling.stretch != 1:
            return layer
        plain = Plain(original_length=layer.rope.original_length)
        return dataclasses.replace(layer, rope=layer.rope.with_scaling(plain))

    return dataclasses.replace(plan, layers=tuple(plainer(layer) for layer in plan.layers))


def _forget_length(plan):
    """Meta's files have no length, and so an unscaled rope none either."""

    def forget(layer):
        if layer.rope is None or not isinstance(layer.rope.scaling, Plain):
            return layer
        return dataclasses.replace(layer, rope=layer.rope.with_scaling(Plain()))

    layers = tuple(forget(layer) for layer in plan.layers)
    original = next((la.rope.original_length for la in layers if la.rope is not None), None)
    return dataclasses.replace(plan, stated_length=None, original_length=original, layers=layers)


@many
@given(
    plan=uniform(
        ropes_with(
            plains,
            lambda _: llama3s(length=8192, bounds=False),
            pairing="adjacent",
        ),
        form="meta",
        model_type="meta",
    )
)
def test_params_of_meta(tmp_path, plan):
    plan = _forget_length(plan)
    same(plan, read(put(tmp_path, written(plan, "meta"), "params.json")))


@many
@given(
    plan=st.one_of(
        uniform(
            ropes_with(
                plains, lambda _: yarns(amplitudes=False, rounding=(None,)), pairing="adjacent"
            ),
            form="mistral",
            model_type="mistral",
            windows=(None, 4096),
        ),
        tempered(
            form="mistral",
            pairing="adjacent",
            scaling=yarns(amplitudes=False, rounding=(None,)),
        ),
        latents((plains,), form="mistral", model_type="mistral", pairings=("adjacent",)),
    )
)
def test_params_of_mistral(tmp_path, plan):
    same(plan, read(put(tmp_path, written(plan, "mistral"), "params.json")))


@many
@given(data=st.data())
def test_original_config_of_gpt_oss(tmp_path, data):
    scaling = data.draw(yarns(amplitudes=False, rounding=(False,)))
    stated = int(scaling.factor * scaling.original_length)
    if scaling.factor == 1:
        scaling = Plain(original_length=stated)
    rope = ropes_with(lambda _: st.just(scaling))
    plan = data.draw(uniform(rope, form="gpt-oss", stated=st.just(stated)))
    same(plan, read(put(tmp_path, written(plan, "gpt-oss"))))


@many
@given(data=st.data())
def test_arguments_of_megatron(tmp_path, data):
    whole = st.integers(2, 64).map(float)
    kinds = (
        plains,
        lambda stated: linears(stated, whole, st.none()),
        lambda _: llama3s(length=8192, bounds=False),
    )
    plan = data.draw(
        st.one_of(
            uniform(ropes_with(*kinds, parted=True), form="megatron", windows=(None, 1, 128)),
            uniform(ropes_with(*kinds, pairing="adjacent", parted=True), form="megatron"),
            uniform(
                ropes_with(lambda _: yarns(amplitudes=False, rounding=(None,))), form="megatron"
            ),
            some_without_rope(ropes_with(plains), form="megatron"),
            latents(
                (plains, lambda _: yarns(amplitudes=False, rounding=(None,))),
                form="megatron",
                pairings=("adjacent",),
            ),
        )
    )
    text = written(plan, "megatron")
    same(plan, read_text(text))
    # The same arguments as a JSON file.
    values = {name.replace("-", "_"): v for name, v in split_flags(text, "t").values.items()}
    same(plan, read(put(tmp_path, json.dumps(values))))
    assert shlex.join(shlex.split(text)) == text


@many
@given(factor=factors, theta=short_thetas)
def test_a_plan_outside_is_refused_not_lost(factor, theta):
    """Each target refuses by name what its row does not list."""
    rope = Rope(head_dim=64, theta=theta, scaling=YaRN(factor=factor, original_length=4096))
    plan = dataclasses.replace(
        _one_layer(rope), format="hf", model_type="llama", stated_length=8192
    )
    for target in ("meta", "gpt-oss"):
        with pytest.raises(ValueError, match=f"--to {target}: got "):
            convert(plan, target)


def _one_layer(rope):
    from generated_plans import plan_of

    return plan_of([("full_attention", rope, None)], 8192, {"heads": 2, "kv_heads": 1})
