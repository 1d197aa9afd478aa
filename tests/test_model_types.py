"""Every ``model_type`` of transformers: a family, a composite, or known to have no rope."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
import transformers
from transformers.models.auto.configuration_auto import (
    CONFIG_MAPPING,
    CONFIG_MAPPING_NAMES,
    model_type_to_module_name,
)

from ropewalk import InputError
from ropewalk.check import check
from ropewalk.cli.main import main
from ropewalk.models import FAMILIES, read_config
from ropewalk.models.composites import MAIN
from ropewalk.models.families import WITHOUT_ROPE, WRAPPERS

MODELS = Path(transformers.__file__).parent / "models"
ROTATES = re.compile(r"apply_rotary|RotaryEmbedding\(|RotaryPos")
# Where the search finds a rotation and the type has none: switched off (moshi_depth; clvp_decoder
# unlike the encoder), angles of a learned matrix, and the whole model named in a remark.
NO_ROPE_ALL_THE_SAME = {"moshi_depth", "clvp_decoder", "lightglue", "gemma4_audio"}
# Types whose default config is none of a model: heads do not divide the hidden size, or no layer
# of its few has a rope.
NO_DEFAULT = {
    "gemma4_assistant", "glm4v_moe", "glm5_next", "qwen3_omni_moe", "qwen3_omni_moe_thinker",
}  # fmt: skip


def test_every_type_is_in_one_table() -> None:
    missing = [
        name
        for name in CONFIG_MAPPING_NAMES
        if not (name in FAMILIES or name in WRAPPERS or name in MAIN or name in WITHOUT_ROPE)
    ]
    assert missing == []
    assert not set(WITHOUT_ROPE) & set(FAMILIES)
    assert not set(WITHOUT_ROPE) & set(WRAPPERS)
    assert set(WRAPPERS.values()) <= set(FAMILIES)


@cache
def _definitions(folder: str) -> dict[str, str]:
    """Return every class and function of a model's modules, from its line up to the next one."""
    out: dict[str, str] = {}
    for file in sorted((MODELS / folder).glob("modeling_*.py")):
        text = re.sub(r'""".*?"""', "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        for part in re.split(r"^(?=class |def |@)", text, flags=re.MULTILINE):
            match = re.match(r"(?:class|def) (\w+)", part)
            if match is not None:
                out[match[1]] = part
    return out


def _code_of(name: str) -> str:
    """Return the code that the classes of a config use, in its own folder."""
    found = _definitions(model_type_to_module_name(name))
    config = CONFIG_MAPPING_NAMES[name]
    takes = re.compile(rf"\bconfig: \"?{config}\b|config_class = {config}\b")
    shared = re.compile(r"PreTrainedModel$|Output$")
    todo = [key for key, text in found.items() if takes.search(text) and not shared.search(key)]
    seen: set[str] = set()
    while todo:
        key = todo.pop()
        if key not in seen:
            seen.add(key)
            names = set(re.findall(r"\w+", found[key]))
            todo += [other for other in names if other in found and not shared.search(other)]
    return "\n".join(found[key] for key in sorted(seen))


@pytest.mark.parametrize("name", sorted(set(WITHOUT_ROPE) & set(CONFIG_MAPPING_NAMES)))
def test_the_code_of_a_type_without_rope_does_not_rotate(name: str) -> None:
    assert bool(ROTATES.search(_code_of(name))) == (name in NO_ROPE_ALL_THE_SAME)


def test_the_search_sees_a_rotation() -> None:
    assert ROTATES.search(_code_of("llama"))
    assert ROTATES.search(_code_of("gptj"))


COMPOSITES = sorted((set(WRAPPERS) & set(CONFIG_MAPPING_NAMES)) - set(FAMILIES) - NO_DEFAULT)


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_composite_is_read_by_its_main_part(name: str) -> None:
    values = json.loads(json.dumps(CONFIG_MAPPING[name]().to_dict(), default=str))
    plan = read_config({**values, "model_type": values["model_type"] or name}, name)
    assert any(layer.rope is not None or layer.axes is not None for layer in plan.layers)


@pytest.mark.parametrize("outer", ["vision-encoder-decoder", "encoder-decoder"])
def test_the_decoder_decides(outer: str) -> None:
    with pytest.raises(InputError, match="learned absolute positions"):
        read_config({"model_type": outer, "decoder": {"model_type": "gpt2"}}, "c")
    llama = {"model_type": "llama", "num_hidden_layers": 2}
    assert read_config({"model_type": outer, "decoder": llama}, "c").rope is not None


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"model_type": "vit"}, "learned absolute positions of image patches"),
        ({"model_type": "deberta-v2"}, "learned relative positions"),
        ({"model_type": "swin"}, "relative position biases of windows (Swin)"),
        ({"model_type": "mt5"}, "relative position buckets"),
        ({"model_type": "wav2vec2"}, "positions from a convolution"),
        ({"model_type": "xlnet"}, "relative positions of Transformer-XL"),
        ({"model_type": "xlstm"}, "no position encoding (recurrent)"),
        ({"model_type": "resnet"}, "no position encoding (convolutions)"),
        ({"model_type": "blip-2", "text_config": {"model_type": "opt"}},
         "learned absolute positions"),
    ],
)  # fmt: skip
def test_a_model_without_rope_is_a_note_and_stops_no_other(
    values: dict[str, object], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = tmp_path / "a.json", tmp_path / "b.json"
    path.write_text(json.dumps(values))
    other.write_text('{"model_type": "llama", "rope_theta": 0}')
    (found,) = check(path).findings
    assert (found.code, found.severity) == ("RW001", "note")
    assert found.right == f"nothing to check: {kind}"
    for names, code in (([str(path)], 0), ([str(path), str(other)], 1)):
        with pytest.raises(SystemExit) as stopped:
            main(["check", *names])
        assert stopped.value.code == code
    assert "RW404" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        main(["inspect", str(path)])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert f"which has {kind}" in said
    assert len(said.splitlines()) == 1


def test_a_type_that_nobody_knows_stays_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"model_type": "unheard-of"}')
    report = check(path)
    assert report.unusable is not None
    assert "'unheard-of'" in report.unusable
