"""Every cell of the table of encodings, computed; and `docs/encodings.md`, made from it."""

from __future__ import annotations

import ast
import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import encoding_measures as measures  # noqa: E402
from encoding_measures import HEADS, LANES, ROWS, SIZES, TRAINED, made, number  # noqa: E402
from encodings_page import CHECKED, PAGE, page, shares  # noqa: E402

from ropewalk import SCALINGS, InputError, Rope  # noqa: E402
from ropewalk.encodings import ENCODINGS, Fire, LogN, Rotary, Sizes, T5Buckets  # noqa: E402
from ropewalk.encodings.modules import attend, attention, module_for  # noqa: E402
from ropewalk.encodings.properties import PROPERTIES  # noqa: E402
from ropewalk.lab.model import Decoder, Shape  # noqa: E402

EVERY = pytest.mark.parametrize("row", PROPERTIES, ids=ROWS)


def only(*names):
    return pytest.mark.parametrize("row", [ROWS[name] for name in names], ids=names)


def test_every_encoding_has_a_row():
    assert len(ROWS) == len(PROPERTIES) == 20
    assert {made(row).kind for row in PROPERTIES} == set(ENCODINGS)


# Extra parameters.


@EVERY
@pytest.mark.parametrize("length", [32, 256])
@pytest.mark.parametrize("sizes", [Sizes(2, 16, 32), Sizes(5, 8, 24)], ids=str)
def test_parameters(row, sizes, length):
    encoding = made(row, length, sizes.head_dim)
    stated = number(row.parameters, encoding, sizes, length)
    shapes = encoding.parameter_shapes(sizes)
    assert stated == sum(math.prod(shape) for shape in shapes.values())
    assert stated == sum(p.numel() for p in module_for(encoding, sizes).parameters())
    assert row.per_layer == encoding.per_layer


@EVERY
def test_parameters_of_a_model(row):
    """Three layers have three sets, or one."""
    shape = Shape(layers=3, heads=2, head_dim=16, hidden=8)
    encoding = made(row)
    decoder = Decoder(shape, encoding)
    stated = number(row.parameters, encoding, shape.sizes) * (3 if row.per_layer else 1)
    assert sum(p.numel() for p in decoder.positions.parameters()) == stated


@pytest.mark.parametrize(
    ("name", "encoding"), [("T5", T5Buckets(buckets=16)), ("FIRE", Fire(hidden=8))]
)
def test_parameters_at_other_settings(name, encoding):
    shapes = encoding.parameter_shapes(SIZES).values()
    assert number(ROWS[name].parameters, encoding) == sum(math.prod(shape) for shape in shapes)


# The two that no other code is needed for.


def test_nope_is_the_product():
    encoding, (q, k) = made(ROWS["none (NoPE)"]), np.random.default_rng(0).normal(size=(2, 2, 9, 4))
    found = encoding.scores(q, k, range(9), range(9))
    # 4 products and their sums, and the scale.
    bound = 6 * 2.0**-52 * 4 * np.abs(q).max() * np.abs(k).max()
    for head, i, j in np.ndindex(2, 9, 9):
        wanted = sum(a * b for a, b in zip(q[head, i], k[head, j], strict=True)) / 2
        assert abs(found[head, i, j] - wanted) <= bound
    assert torch.equal(
        module_for(encoding, SIZES).embed(torch.ones(1, 9, 4), None), torch.ones(9, 4)[None]
    )


def test_learned_adds_rows_of_its_table():
    module = measures.module_of(made(ROWS["learned"], 9))
    x, at = torch.zeros(2, 4, SIZES.width), torch.tensor([8, 0, 3, 3])
    found = module.embed(x, at)
    for row, position in enumerate(at.tolist()):
        assert torch.equal(found[0, row], module.table[position])
    table = module.table.detach().double().numpy()
    assert np.array_equal(
        module.encoding.added(at.numpy(), SIZES.width, {"table": table}), table[at]
    )


# What positions tell.


@EVERY
def test_information(row):
    assert measures.information(made(row)) == row.information


@EVERY
def test_distance_only(row):
    assert measures.distance_only(made(row)) == row.distance_only
    assert bool(row.unless) != row.distance_only


@pytest.mark.parametrize(
    ("name", "within", "beyond"),
    [
        # Texts that end before L, and one far beyond.
        ("FIRE", (60, 61, TRAINED), (60, 61, None)),
        ("dynamic NTK", (60, 61, TRAINED - 1), (60, 61, None)),
        ("log-n (on RoPE)", (60, 61, TRAINED - 1), (60, 61, None)),
        # Distances below the window, or up to local, anywhere; and some more.
        ("Self-Extend", (100, TRAINED // 4, None), (100, TRAINED // 4 + 8, None)),
        # 155 positions on begins a chunk of 176; 20 further on some keys are in the one before.
        ("dual chunk", (21, TRAINED // 16 + 1, None), (41, TRAINED // 16 + 9, None)),
    ],
)
def test_up_to_where_the_exception_says_only_the_distance_counts(name, within, beyond):
    encoding = made(ROWS[name])
    assert measures.distance_only(encoding, *within)
    assert not measures.distance_only(encoding, *beyond)


@only("sinusoidal", "learned")
def test_without_the_embeddings_scores_see_no_position(row):
    encoding = made(row)
    here, _ = measures.pair_scores(encoding, 100, np.arange(101), None, embedded=False)
    there, _ = measures.pair_scores(encoding, 150, np.arange(101) + 7, None, embedded=False)
    assert np.array_equal(here, there)


def test_dynamic_ntk_at_one_length_is_a_rotation_like_any_other():
    """At one length of the text, texts that go on do not count."""
    encoding = made(ROWS["dynamic NTK"])
    held = 5000
    here, bound = measures.pair_scores(encoding, 100, np.arange(101), held)
    there, more = measures.pair_scores(encoding, 4100, np.arange(4000, 4101), held)
    assert not measures.differ(here, there, bound + more)


# What can be kept.


@EVERY
def test_keys_kept(row):
    assert measures.keys_kept(made(row)) == row.keys_kept


@EVERY
def test_key_copies(row):
    assert measures.key_copies(made(row)) == row.key_copies


@EVERY
def test_keys_placed(row):
    assert measures.keys_placed(made(row)) == row.keys_placed


@EVERY
def test_anew(row):
    assert measures.anew(made(row)) == row.anew


def decoded(module, q, k, v, keep):
    """Outputs token by token; keys are kept from their own time where ``keep``."""
    time, kept, outs = q.shape[-2], None, []
    at = torch.arange(time)
    for end in range(1, time + 1):
        here = slice(end - 1, end)
        if keep:
            new = module.keys(k[..., here, :], at[here], end)
            before = new if kept is None else kept
            kept = [
                part if kept is None else torch.cat([old, part], dim=-2)
                for old, part in zip(before, new, strict=True)
            ]
        else:
            kept = list(module.keys(k[..., :end, :], at[:end], end))
        queries = [t * LANES**-0.5 for t in module.queries(q[..., here, :], at[here], end)]
        scores = attention._scores(module, queries, kept, at[here], at[:end])
        bias = module.bias(q[..., here, :], at[here], at[:end], LANES**-0.5, end)
        weights = (scores if bias is None else scores + bias).softmax(-1)
        outs.append(weights.to(v.dtype) @ v[..., :end, :])
    return torch.cat(outs, dim=-2)


def decoding_bound(module, v, time):
    """Float64 roundings of LANES products, of angles below ``time`` and of ``time`` weights.

    Biases come in float32 where the module makes them there, from the same numbers: no more.
    """
    largest = 40.0 * (1 + len(list(module.parameters())))
    return float(v.abs().max()) * (2 * largest * (LANES + 8 * time) + time) * 2.0**-52


@EVERY
def test_decoding_with_kept_keys_gives_the_full_pass(row):
    """Except where the table says that keys do not stay; computed anew they always do."""
    time, length = 90, 90 if row.name == "learned" else 32
    encoding = made(row, length)
    module = measures.module_of(encoding, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, time, SIZES.width, dtype=torch.float64, generator=generator)
    at = torch.arange(time)
    with torch.no_grad():
        embedded = module.embed(x, at)[0].numpy()
        q, k, v = (torch.from_numpy(measures.projected(embedded, seed))[None] for seed in (5, 6, 7))
        one_by_one = torch.cat(
            [module.embed(x[:, i : i + 1], at[i : i + 1]) for i in range(time)], dim=1
        )
        assert torch.equal(one_by_one[0], torch.from_numpy(embedded))
        bound = decoding_bound(module, v, time)
        last = attend(module, q, k, v, at, at)[..., -1, :]
        anew = decoded(module, q, k, v, keep=False)[..., -1, :]
        kept = decoded(module, q, k, v, keep=True)[..., -1, :]
    assert not measures.differ(anew.numpy(), last.numpy(), bound)
    assert measures.differ(kept.numpy(), last.numpy(), bound) != row.keys_kept


@only("T5", "ALiBi", "KERPLE-log")
def test_a_bias_row_gains_one_entry_whatever_the_query(row):
    module = measures.module_of(made(row))
    for at in (20, 300, 700):
        before, after = (measures.bias_row(module, at + step) for step in (0, 1))
        assert measures.moved_on(before, after)
        assert torch.equal(before, measures.bias_row(module, at, seed=9))


def test_fire_gains_one_entry_up_to_l_and_a_row_beyond():
    fire = Fire(threshold=256.0)
    parameters = fire.initial_parameters(SIZES)
    at = np.array([100, 101, 900, 901])
    near, next_near, far, next_far = (
        fire.bias([i], np.arange(i + 1), parameters)[:, 0] for i in at
    )
    # The same arithmetic on the same distances; a logarithm may round otherwise by its place.
    assert np.abs(near - next_near[:, 1:]).max() <= 64 * 2.0**-52
    assert np.abs(far - next_far[:, 1:]).max() > 1e-6


def test_transformer_xl_keeps_the_vectors_of_distances_but_not_their_products():
    module = measures.module_of(made(ROWS["Transformer-XL"]), dtype=torch.float64)
    with torch.no_grad():
        short, long = (module._rows(module._falling(count)) for count in (50, 80))
        one = measures.bias_row(module.float(), 30)
        other = measures.bias_row(module, 30, seed=1)
    # W_r R: the same products of `width` lanes, maybe summed in another order.
    bound = SIZES.width * 2.0**-52 * SIZES.width * float(long.abs().max())
    assert float((short - long[:, -50:]).abs().max()) <= bound
    assert float((one - other).abs().max()) > 0.1


@only("T5", "ALiBi", "KERPLE-log", "FIRE", "Transformer-XL", "none (NoPE)")
def test_keys_without_positions_are_the_keys_themselves(row):
    k = torch.randn(1, HEADS, 9, LANES)
    (kept,) = measures.module_of(made(row)).keys(k, torch.arange(9))
    assert torch.equal(kept, k)


# Past the trained length.


@EVERY
def test_past(row):
    assert measures.past(made(row)) == row.past


def biases(encoding, away):
    return encoding.of_distance(np.asarray(away), HEADS, measures.parameters_for(encoding))


def test_no_position_at_all_is_seen_by_nope():
    encoding = made(ROWS["none (NoPE)"])
    here, _ = measures.pair_scores(encoding, 100, np.arange(101), None)
    there, _ = measures.pair_scores(encoding, 10**9, np.arange(101), None)
    assert np.array_equal(here, there)


@only("sinusoidal", "Transformer-XL")
def test_the_lanes_of_long_waves_take_new_values(row):
    encoding = made(row)

    def vectors(first, last):
        at = np.arange(first, last)
        if row.name == "sinusoidal":
            return encoding.added(at, LANES)
        return encoding.distance_vectors(at, LANES)

    seen, beyond = vectors(0, TRAINED), vectors(TRAINED, 64 * TRAINED)
    waves = 2 * math.pi * 10000 ** (2 * np.arange(LANES // 2) / LANES)
    new = (beyond < seen.min(0)) | (beyond > seen.max(0))
    # By more than half a step of one token: a sine between two seen points is nothing new.
    steps = 2 * math.pi / waves.repeat(2) / 2
    new &= (beyond < seen.min(0) - steps) | (beyond > seen.max(0) + steps)
    assert np.array_equal(new.any(0).reshape(-1, 2).any(1), waves > TRAINED)


def test_learned_has_no_vector():
    encoding = made(ROWS["learned"])
    parameters = measures.parameters_for(encoding)
    assert encoding.added([TRAINED - 1], SIZES.width, parameters) is not None
    with pytest.raises(InputError, match="position 256"):
        encoding.added([TRAINED], SIZES.width, parameters)
    with pytest.raises(InputError, match="position 256"):
        module_for(encoding, SIZES).embed(torch.zeros(1, 1, SIZES.width), torch.tensor([TRAINED]))


def test_t5_is_flat_in_the_last_bucket_if_training_reached_it():
    encoding = made(ROWS["T5"])
    last = encoding.buckets - 1
    first = int(np.flatnonzero(encoding.bucket(np.arange(200)) == last)[0])
    assert first < encoding.max_distance < TRAINED
    far = biases(encoding, [first, TRAINED, 10**9])
    assert (far == far[:, :1]).all()
    assert last not in encoding.bucket(np.arange(first))  # a text of that length never meets it


def test_alibi_falls_by_its_slope_and_kerple_by_a_logarithm():
    slopes = np.diff(biases(made(ROWS["ALiBi"]), [10**6, 10**6 + 1]))[:, 0]
    assert np.array_equal(slopes, -np.array([2.0**-4, 2.0**-8, 2.0**-2]))
    kerple = made(ROWS["KERPLE-log"])
    r1 = np.exp(measures.parameters_for(kerple)["log_r1"])
    per_doubling = np.diff(biases(kerple, [2**40, 2**41]))[:, 0]
    # log(1 + 2a) - log(1 + a) is log 2 less 1 / (2a); values of at most 40 r1.
    r2 = np.exp(measures.parameters_for(kerple)["log_r2"])
    bound = r1 * (1 / (r2 * 2**40) + 80 * 2.0**-52)
    assert (np.abs(per_doubling + r1 * math.log(2)) <= bound).all()


def test_the_input_of_fire_stays_from_0_to_1():
    fire = Fire(threshold=float(TRAINED), hidden=1)
    shown = {
        **fire.initial_parameters(SIZES),
        "hidden_weight": np.ones(1),
        "hidden_bias": np.zeros(1),
        "out_weight": np.ones((HEADS, 1)),
        "out_bias": np.zeros(HEADS),
    }
    for at in (TRAINED - 1, 4 * TRAINED, 10**9):
        inputs = fire.bias([at], np.linspace(0, at, 50).astype(int), shown)
        assert 0 <= inputs.min() <= inputs.max() < 1


@only("RoPE", "partial RoPE", "p-RoPE", "clipped RoPE", "Resonance RoPE", "xPos", "log-n (on RoPE)")
def test_new_angles_are_those_of_planes_without_a_full_turn_in_training(row):
    encoding = made(row)
    frequencies = measures.rope_of(encoding).inv_freq()
    turning = frequencies > 0
    short_of_a_turn = turning & (frequencies * TRAINED < 2 * math.pi)
    assert np.array_equal(measures.new_angles(encoding, 64 * TRAINED), short_of_a_turn)
    assert turning.all() != (row.name in ("p-RoPE", "clipped RoPE"))
    assert short_of_a_turn.any() != (row.name == "clipped RoPE")


def test_resonant_planes_repeat_exactly():
    """Position m looks like m modulo the wavelength, but for the 64 bits of a frequency."""
    rope = measures.rope_of(made(ROWS["Resonance RoPE"]))
    at = np.arange(64 * TRAINED)
    cos, _ = rope.cos_sin(at, dtype=np.float64)
    waves = np.round(2 * math.pi / rope.inv_freq()).astype(int)
    assert (waves <= TRAINED).sum() == 4
    for plane in np.flatnonzero(waves <= TRAINED):
        apart = np.abs(cos[:, plane] - cos[at % waves[plane], plane]).max()
        # 2^-65 of a turn per position, and the cosine's own rounding on both sides.
        assert apart <= 2 * math.pi * len(at) * 2.0**-65 + 14 * 2.0**-52


def test_xpos_fades():
    encoding = made(ROWS["xPos"])
    plain = Rotary(rope=encoding.rope)
    q, k = measures.projected(measures.tokens(1), 5), measures.projected(measures.tokens(1, 1), 6)
    for away in (TRAINED, 256 * TRAINED):
        total = np.abs(encoding.scores(q, k, [away], [0])).max()
        size = np.linalg.norm(q, axis=-1).max() * np.linalg.norm(k, axis=-1).max() / LANES**0.5
        assert total <= size * encoding.zeta().max() ** (away / 512)
    assert np.abs(plain.scores(q, k, [256 * TRAINED], [0])).max() > 100 * total


def test_dynamic_ntk_ends_the_slowest_plane_where_training_did_and_not_those_between():
    encoding = made(ROWS["dynamic NTK"])
    assert measures.new_angles(encoding, 16 * TRAINED).tolist()[:7] == [False] * 4 + [True] * 3
    trained = encoding.rope.inv_freq()
    for text in (TRAINED + 1, 4 * TRAINED, 64 * TRAINED):
        stretched = encoding.rope.inv_freq(text)
        # Less than a token's step further than the last position of training.
        assert TRAINED - 1 <= (text - 1) * stretched[7] / trained[7] < TRAINED
        # Half a turn at most in training, and further on than its end.
        between = (text - 1) * stretched[4:7] - (TRAINED - 1) * trained[4:7]
        assert (trained[4:7] * TRAINED < 2 * math.pi).all()
        assert (between > 0).all()


@only("ReRoPE", "leaky ReRoPE", "Self-Extend", "dual chunk")
def test_relative_positions_end_where_the_table_says(row):
    encoding = made(row)

    def largest(text):
        """The last queries of a text; groups and chunks make others than the last one count."""
        queries = np.arange(max(0, text - 2 * TRAINED), text)
        relative = encoding.relative(queries, np.arange(text))
        return relative[queries[:, None] >= np.arange(text)].max()

    window, leak = getattr(encoding, "window", 0), getattr(encoding, "leak", None)
    if row.name == "ReRoPE":
        assert largest(20 * TRAINED) == window
    elif row.name == "dual chunk":
        assert largest(20 * TRAINED) == encoding.chunk + encoding.local - 1 < TRAINED
    else:
        group = getattr(encoding, "group", 0)
        if row.name == "Self-Extend":
            reach = group * (TRAINED - window) + window
            assert reach == encoding.reach(TRAINED)
        else:
            reach = window + leak * (TRAINED - 1 - window) + 1
        assert largest(reach) <= TRAINED - 1 < largest(reach + 1)


def test_log_n_grows_queries_past_the_length_and_turns_like_what_it_wraps():
    encoding = made(ROWS["log-n (on RoPE)"])
    at, to = 4 * TRAINED - 1, np.arange(4 * TRAINED)
    grown, bound = measures.pair_scores(encoding, at, to, None)
    plain, _ = measures.pair_scores(encoding.inner, at, to, None)
    factor = math.log(4 * TRAINED) / math.log(TRAINED)
    assert factor > 1
    assert np.abs(grown - factor * plain).max() <= 2 * bound
    within = measures.pair_scores(encoding, TRAINED - 1, np.arange(TRAINED), None)[0]
    inner = measures.pair_scores(encoding.inner, TRAINED - 1, np.arange(TRAINED), None)[0]
    assert np.array_equal(within, inner)


@pytest.mark.parametrize("kind", sorted(SCALINGS))
def test_scalings_cost_what_rope_costs_and_keep_keys_unless_they_go_by_the_length(kind):
    cls = SCALINGS[kind]
    known = {"factor": 4.0, "original_length": TRAINED, "share": 0.5, "target_length": 1024}
    known |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    known |= {"short_factor": (1.0,) * 8, "long_factor": (2.0,) * 8}
    fields = {f.name: f for f in dataclasses.fields(cls)}
    rope = Rope(head_dim=LANES, scaling=cls(**{n: known[n] for n in fields if n in known}))
    encoding = Rotary(rope=rope)
    assert measures.token_operations(encoding) == 6 * LANES
    assert measures.products(encoding) == 1
    assert measures.keys_kept(encoding) == (kind not in ("dynamic", "longrope"))


# Cost.


@EVERY
def test_token_operations(row):
    encoding = made(row)
    assert measures.token_operations(encoding) == number(row.token_operations, encoding)


@EVERY
def test_embedding_operations(row):
    encoding = made(row)
    stated = number(row.embedding_operations, encoding)
    assert measures.embedding_operations(encoding) == stated


@EVERY
def test_pair_operations(row):
    """Beyond the trained length, where FIRE's are more."""
    encoding = made(row)
    # A quotient of whole numbers.
    found, stated = measures.pair_operations(encoding), number(row.pair_operations, encoding)
    assert abs(found - stated) <= 4 * 2.0**-52 * stated


def test_fire_costs_an_addition_per_pair_up_to_l():
    assert measures.pair_operations(Fire(threshold=10_000.0), first=0) == 1


def test_what_fire_computes_per_pair_is_shared_by_the_heads_but_for_a_line():
    fire, time = measures.module_of(made(ROWS["FIRE"])), 40
    at, q = torch.arange(time) + TRAINED + 1, torch.randn(1, HEADS, time, LANES)
    seen = measures.counted(lambda: fire.bias(q, at, at, 1.0))
    assert [n for _, shape, n in seen if shape == (time, time)] == 4 * [time * time]
    assert [n for _, shape, n in seen if shape == (time, time, HEADS)] == 2 * [HEADS * time * time]


def test_transformer_xl_pays_for_the_vector_of_each_distance():
    module, time = measures.module_of(made(ROWS["Transformer-XL"])), 40
    at, q = torch.arange(time), torch.randn(1, HEADS, time, LANES)
    seen = measures.counted(lambda: module.bias(q, at, at, 1.0))
    (vectors,) = [n for name, _, n in seen if name == "mm"]
    assert vectors == time * HEADS * 2 * SIZES.width * LANES


@EVERY
def test_products(row):
    """In a block of queries that is all border; Transformer-XL has one distance more than keys."""
    encoding = made(row, 64 if row.name == "learned" else 16)
    found = measures.products(encoding)
    # Some keys of the block are alike for all queries: fewer than half a product per pair.
    assert row.products - 0.5 < found <= row.products + 1 / 64
    decoding = measures.products(encoding, queries=1)
    assert decoding == (2 + 1 / 64 if row.name == "Transformer-XL" else 1)


def test_log_n_multiplies_queries_once():
    """The wrapped module has no bias, so none is asked for with queries grown a second time."""
    module = module_for(LogN(inner=Rotary(rope=Rope(head_dim=LANES)), original_length=4), SIZES)
    at, q = torch.arange(9), torch.randn(1, HEADS, 9, LANES)
    assert measures.counted(lambda: module.bias(q, at, at, 1.0, 9)) == []


# The page.


def test_the_page_is_up_to_date():
    """`python tests/encodings_page.py` writes it."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_its_examples_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", page(), re.S)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "docs/encodings.md", "exec"), {})
    assert capsys.readouterr().out.split("\n")[:-1] == [
        line.partition("# ")[2]
        for block in blocks
        for line in block.splitlines()
        if line.startswith("print")
    ]


def test_tables_are_narrow_and_every_row_is_in_each():
    text = page()
    assert max(len(line) for line in text.splitlines()) <= 100
    for row in PROPERTIES:
        assert text.count(f"\n| {row.name} |") >= 4


def test_what_it_says_was_checked_is_a_test():
    """Each encoding names the tests that compare it with others' code or with its formula."""
    here = Path(__file__).parent
    assert set(CHECKED) == set(ROWS)
    for names in CHECKED.values():
        assert names
        for name in names:
            file, _, test = name.partition("::")
            tree = ast.parse((here / file).read_text(encoding="utf-8"))
            assert test in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}, name


def test_shares_of_products_are_those_that_attention_takes():
    """What the page says of a prompt, counted by running a small one."""
    for name in ("ReRoPE", "dual chunk"):
        encoding = made(ROWS[name], 16)
        module, time = measures.module_of(encoding), 200
        q = torch.randn(1, HEADS, time, LANES)
        at = torch.arange(time)
        rows = attention._FEWEST_ROWS
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attention, "_SCORES_AT_ONCE", 1)
            seen = measures.counted(lambda m=module, x=q, p=at: attend(m, x, x, x, p, p))
        # Products with keys have as many columns as keys; those with values have LANES.
        starts = range(0, time, rows)
        scored = sum(min(s + rows, time) * (min(s + rows, time) - s) for s in starts)
        of_values = 2 * scored * LANES * HEADS
        total = sum(n for kind, _, n in seen if kind == "bmm")
        assert (total - of_values) / of_values == shares(encoding, time)
