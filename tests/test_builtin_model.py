"""The model in the package does what its page says."""

from pathlib import Path

import pytest

from ropewalk import Plain, Rope
from ropewalk.extend.loading import builtin_model
from ropewalk.extend.measure import measure
from ropewalk.extend.options import Options
from ropewalk.models.read import read

torch = pytest.importorskip("torch")


def test_it_is_small_and_complete() -> None:
    files = {f.name: f.stat().st_size for f in builtin_model().iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= set(files)
    assert sum(files.values()) <= 8 * 10**6


def test_its_rope() -> None:
    plan = read(builtin_model())
    assert plan.rope == Rope(head_dim=64, theta=10000.0, scaling=Plain(original_length=512))
    assert plan.original_length == 512
    assert len(plan.layers) == 4


def test_transformers_loads_it_and_its_ids_are_bytes() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(builtin_model())
    text = 'def é(x):\n\treturn "日本", 0x00 \x00\r\n'
    ids = tokenizer(text)["input_ids"]
    assert bytes(ids) == text.encode()
    assert tokenizer.decode(ids) == text
    model = AutoModelForCausalLM.from_pretrained(builtin_model())
    assert sum(p.numel() for p in model.parameters()) == 3_016_960


def test_loss_and_retrieval_at_its_original_length(tmp_path: Path) -> None:
    """Below 1.6 bits per byte on files it never saw, and above 90 % of keys found."""
    options = Options(lengths=(512,), methods=("none",), documents=16, trials=100)
    m = measure(None, options, journal_folder=tmp_path)
    assert m.cells[0].bits_per_byte < 1.6
    assert m.retrieval[0].overall.interval.low > 0.9


def test_cropping_finds_near_keys_and_loses_far_ones(tmp_path: Path) -> None:
    """Cropping keeps the newest tokens: keys within them are found, others cannot be."""
    options = Options(lengths=(1024,), methods=("crop",), documents=4, trials=20, short=False)
    m = measure(None, options, journal_folder=tmp_path)
    near, far = m.retrieval[0].by_distance
    # A key that straddles the cut is lost: the last one within the original length may miss.
    assert near.hits >= near.trials - 1
    assert near.trials >= 9
    assert (far.hits, far.farthest) == (0, 1024)


@pytest.mark.slow
def test_the_three_stages(tmp_path: Path) -> None:
    """Extrapolation breaks, interpolation less, YaRN least; cropping predicts best."""
    options = Options(
        lengths=(2048,), methods=("crop", "none", "linear", "yarn"), documents=12, trials=0
    )
    m = measure(None, options, journal_folder=tmp_path)
    loss = {c.method: c.nats for c in m.cells}
    assert loss["crop"] < loss["yarn"] < loss["linear"] < loss["none"]
