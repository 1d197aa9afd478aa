"""Scores of long passes equal the model's own logits, under any rope."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from ropewalk import InputError, Rope
from ropewalk.convert.rope_block import rope_parameters
from ropewalk.encodings import ReRoPE
from ropewalk.extend.loading import load
from ropewalk.extend.methods import METHODS
from ropewalk.extend.override import RopeSlot
from ropewalk.extend.remapping import turning, with_pairing
from ropewalk.extend.scoring import Scorer

torch = pytest.importorskip("torch")
METHOD_NAMES = [name for name, method in METHODS.items() if method.build is not None]


def tokens_of(length: int, rows: int = 2):
    return torch.randint(0, 256, (rows, length), generator=torch.Generator().manual_seed(1))


def own_log_likelihoods(model, tokens, scored):
    with torch.inference_mode():
        logits = model(input_ids=tokens, use_cache=False).logits.float()
    values = logits.log_softmax(-1)[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
    return values[:, -scored:]


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_equals_transformers_given_the_config_block(
    tiny_model: Path, tmp_path: Path, name: str
) -> None:
    """The rope put into a running model equals the same rope through config.json."""
    original, length = 192, 768
    loaded = load(tiny_model, dtype="float32")
    rope = METHODS[name].rope(loaded.positions.rope, length / original, original)
    tokens = tokens_of(length)
    ours, _ = Scorer(loaded).log_likelihoods(tokens, rope, 50, length)

    config = json.loads((tiny_model / "config.json").read_text())
    config.pop("rope_theta")
    config["rope_parameters"] = rope_parameters(rope)
    stretched = tmp_path / "stretched"
    shutil.copytree(tiny_model, stretched)
    (stretched / "config.json").write_text(json.dumps(config))
    from transformers import AutoModelForCausalLM

    theirs = own_log_likelihoods(AutoModelForCausalLM.from_pretrained(stretched).eval(), tokens, 50)
    # transformers forms angles in float32: off by up to 768 · 2^-23 radians, which moves a
    # score of this model by about as much; a few layers of float32 sums on top.
    assert (ours - theirs).abs().max() < 10 * length * 2.0**-23


def test_float32_angles_give_transformers_logits(tiny_model: Path) -> None:
    loaded = load(tiny_model, dtype="float32")
    tokens = tokens_of(180)
    theirs = own_log_likelihoods(loaded.model, tokens, 50)
    rope = loaded.positions.rope
    assert rope is not None
    ours, _ = Scorer(loaded).log_likelihoods(tokens, rope, 50, 180, precision="float32")
    # The angles are equal bit for bit; what is left is the order of sums in attention.
    assert (ours - theirs).abs().max() < 2.0**-17


def test_scores_are_chunked_without_changing_them(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = Scorer(load(tiny_model, dtype="float32"))
    rope, tokens = scorer.loaded.positions.rope, tokens_of(200)
    assert rope is not None
    whole = scorer.log_likelihoods(tokens, rope, 150, 200)
    monkeypatch.setattr("ropewalk.extend.scoring._LOGITS_AT_ONCE", 256 * 2 * 7)
    parts = scorer.log_likelihoods(tokens, rope, 150, 200)
    assert torch.equal(whole[1], parts[1])
    assert (whole[0] - parts[0]).abs().max() <= 2.0**-20


def test_logits_are_never_tokens_times_vocabulary(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = Scorer(load(tiny_model, dtype="float32"))
    seen: list[int] = []
    inner = scorer._logits
    monkeypatch.setattr(
        scorer, "_logits", lambda hidden: (seen.append(hidden.shape[1]), inner(hidden))[1]
    )
    monkeypatch.setattr("ropewalk.extend.scoring._LOGITS_AT_ONCE", 256 * 10)
    rope = scorer.loaded.positions.rope
    assert rope is not None
    scorer.log_likelihoods(tokens_of(400, rows=1), rope, 100, 400)
    assert sum(seen) == 100
    assert max(seen) <= 10


def test_the_model_is_as_before_after_a_pass(tiny_model: Path) -> None:
    scorer = Scorer(load(tiny_model, dtype="float32"))
    model, tokens = scorer.loaded.model, tokens_of(64)
    before = own_log_likelihoods(model, tokens, 10)
    base = scorer.loaded.positions.rope
    assert base is not None
    scorer.log_likelihoods(tokens, METHODS["linear"].rope(base, 4, 192), 10, 64)
    assert torch.equal(own_log_likelihoods(model, tokens, 10), before)


def test_a_rope_that_is_not_the_models_is_refused(tiny_model: Path) -> None:
    """A wrong theta in the plan is found before anything is measured."""
    loaded = load(tiny_model, dtype="float32")
    layers = tuple(
        dataclasses.replace(layer, rope=Rope(head_dim=16, theta=500000.0))
        for layer in loaded.positions.layers
    )
    wrong = dataclasses.replace(loaded.positions, layers=layers)
    with pytest.raises(InputError, match="not those of the rope in the file"):
        RopeSlot(loaded.model, wrong)


def test_a_head_that_is_not_reproduced_is_refused(tiny_model: Path) -> None:
    loaded = load(tiny_model, dtype="float32")
    head = loaded.model.get_output_embeddings()
    # A forward that scales its logits in a way no config key tells of.
    inner = loaded.model.forward
    loaded.model.forward = lambda *a, **k: _scaled(inner(*a, **k))
    with pytest.raises(InputError, match="differ from the model's own"):
        Scorer(loaded)
    assert head is loaded.model.get_output_embeddings()


def _scaled(output):
    output.logits = output.logits * 3
    return output


def test_gemma3_keeps_its_local_layers_as_they_are(tmp_path: Path, tiny_model: Path) -> None:
    """Only the long-range layers are stretched; windows and two tables work."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=192,
        sliding_window=64,
        query_pre_attn_scalar=16,
    )
    torch.manual_seed(0)
    folder = tmp_path / "gemma"
    Gemma3ForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_model / name, folder / name)
    loaded = load(folder, dtype="float32")
    tokens = tokens_of(400)
    theirs = own_log_likelihoods(loaded.model, tokens, 50)
    scorer = Scorer(loaded)
    base = loaded.positions.rope
    assert base is not None
    assert base.theta == 1e6
    ours, _ = scorer.log_likelihoods(tokens, base, 50, 400)
    assert (ours - theirs).abs().max() < 10 * 400 * 2.0**-23
    stretched, _ = scorer.log_likelihoods(tokens, METHODS["linear"].rope(base, 4, 192), 50, 400)
    assert (stretched - theirs).abs().max() > 1e-4


def test_an_encoding_is_paired_as_the_weights_in_memory_are(tiny_model) -> None:
    """A GGUF file of a Llama says adjacent; transformers permutes its weights to halves."""
    loaded = load(tiny_model, dtype="float32")
    said = tuple(
        dataclasses.replace(layer, rope=dataclasses.replace(layer.rope, pairing="adjacent"))
        for layer in loaded.positions.layers
    )
    told = dataclasses.replace(loaded.positions, layers=said)
    scorer = Scorer(dataclasses.replace(loaded, positions=told))
    tokens = tokens_of(100, rows=1)
    rope = told.rope
    plain, _ = scorer.log_likelihoods(tokens, rope, 40, 100)
    # A window that no distance reaches changes nothing but the way to the scores.
    remapped, _ = scorer.log_likelihoods(tokens, ReRoPE(rope=rope, window=150), 40, 100)
    assert scorer._remapped[1] == "half"
    # Log probabilities of a few nats, sums of some hundred terms in another order.
    assert (plain - remapped).abs().max().item() <= 2.0**-24 * 512 * plain.abs().max().item()
    wrong = with_pairing(ReRoPE(rope=rope, window=150), "adjacent")
    with turning(scorer.slot, wrong, scorer._remapped[0], 100), torch.no_grad():
        other = scorer._logits(scorer._hidden(tokens))
    right_one = with_pairing(wrong, "half")
    with turning(scorer.slot, right_one, scorer._remapped[0], 100), torch.no_grad():
        right = scorer._logits(scorer._hidden(tokens))
    # The other pairing is no rounding: a hundred times what rounding makes.
    assert (other - right).abs().max().item() > 100 * 2.0**-24 * right.abs().max().item()
