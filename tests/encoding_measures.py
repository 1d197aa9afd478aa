"""Works the table of encodings out: what `ropewalk.encodings.properties` states, computed.

Each function takes an encoding and returns what the column of the same name should say. Float64
and the specification where positions are judged, the modules where caches and costs are.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import ropewalk
from ropewalk import InputError, encodings
from ropewalk.encodings import Sizes
from ropewalk.encodings.modules import attention, module_for
from ropewalk.encodings.properties import PROPERTIES

HEADS, LANES, WIDTH = 3, 16, 24
SIZES = Sizes(heads=HEADS, head_dim=LANES, width=WIDTH)
TRAINED = 256
"""Tokens of a training text."""
SHIFTS = (1, 7, 64, 155, 1000, 100_000)
EPSILON = 2.0**-52
ROWS = {row.name: row for row in PROPERTIES}


def made(row, length=TRAINED, head_dim=LANES):
    """The encoding that a row is about."""
    known = {**vars(ropewalk), **{name: getattr(encodings, name) for name in encodings.__all__}}
    for name in ("Rope", "Proportional", "Clipped", "Resonance", "DynamicNTK"):
        known[name] = getattr(ropewalk, name)
    known |= {"length": length, "head_dim": head_dim, "rope": ropewalk.Rope(head_dim=head_dim)}
    return eval(row.made, {"__builtins__": {}}, known)


def rope_of(encoding):
    inner = getattr(encoding, "inner", encoding)
    return getattr(inner, "rope", None)


def number(formula, encoding, sizes=SIZES, length=TRAINED):
    """The value of a formula of the table."""
    rope = rope_of(encoding)
    known = {
        "heads": sizes.heads,
        "head_dim": sizes.head_dim,
        "width": sizes.width,
        "length": length,
        "rotary_dim": rope.rotary_dim if rope else None,
        "buckets": getattr(encoding, "buckets", None),
        "hidden": getattr(encoding, "hidden", None),
    }
    return eval(formula, {"__builtins__": {}}, known)


def parameters_for(encoding, sizes=SIZES):
    """Parameters away from their first values, so that none of them hides."""
    drawn = encoding.initial_parameters(sizes, seed=3)
    noise = np.random.default_rng(4)
    return {name: value + 0.1 * noise.normal(size=value.shape) for name, value in drawn.items()}


def module_of(encoding, sizes=SIZES, dtype=torch.float32):
    module = module_for(encoding, sizes).to(dtype)
    with torch.no_grad():
        for name, value in parameters_for(encoding, sizes).items():
            dict(module.named_parameters())[name].copy_(torch.from_numpy(np.asarray(value)))
    return module


def tokens(count, seed=0, sizes=SIZES):
    """Embeddings (count, width)."""
    return np.random.default_rng(seed).normal(size=(count, sizes.width))


def projected(x, seed, sizes=SIZES):
    """(time, width) -> (heads, time, head_dim)."""
    shape = (sizes.heads, x.shape[-1], sizes.head_dim)
    return x @ np.random.default_rng(seed).normal(size=shape) / math.sqrt(x.shape[-1])


def differ(one, other, bound):
    """Whether two arrays differ: by rounding, or by far more; between the two is an error."""
    apart = float(np.abs(one - other).max(initial=0.0))
    if apart <= bound:
        return False
    assert apart > 2**20 * bound, f"{apart:g} is neither rounding ({bound:g}) nor a difference"
    return True


def rounding(q, k, position):
    """How far a float64 score may be off.

    Two turned vectors, each off by 6 epsilon, by 2^-65 of a turn per token of its position and by
    3 roundings; a product of LANES lanes; xPos' power.
    """
    size = np.linalg.norm(q, axis=-1).max() * np.linalg.norm(k, axis=-1).max() / LANES**0.5
    angle = 6 * EPSILON + 2 * math.pi * position * 2.0**-65
    return float(size) * (2 * angle + (10 + LANES / 2) * EPSILON)


def pair_scores(encoding, at, to, length, embedded=True):
    """Scores of one query and some keys of fixed tokens at the given positions."""
    x, y = tokens(1), tokens(len(to), seed=1)
    parameters = parameters_for(encoding)
    if embedded:
        for array, positions in ((x, [at]), (y, to)):
            more = encoding.added(np.asarray(positions), WIDTH, parameters)
            array += 0 if more is None else more
    q, k = projected(x, 5), projected(y, 6)
    scores = encoding.scores(q, k, [at], to, parameters=parameters, length=length)
    return scores, rounding(q, k, at + 1)


def shifts_of(encoding, at):
    """Shifts for which all positions exist."""
    return [s for s in SHIFTS if encoding.longest is None or at + s < encoding.longest]


def information(encoding):
    """See `properties.Information`."""
    at, to, held = 100, np.arange(101), 1_000_000
    scores, bound = pair_scores(encoding, at, to, held, embedded=False)
    together = False
    for shift in shifts_of(encoding, at):
        moved, more = pair_scores(encoding, at + shift, to + shift, held, embedded=False)
        together |= differ(moved, scores, bound + more)
    alone, more = pair_scores(encoding, at + 1, to, held, embedded=False)
    relative = differ(alone, scores, bound + more)
    parameters = parameters_for(encoding)
    here, there = (encoding.added(np.array([at + s]), WIDTH, parameters) for s in (0, 1))
    absolute = here is not None and differ(here, there, 8 * EPSILON)
    if absolute or together:
        return "both" if relative else "absolute"
    return "relative" if relative else "none"


def distance_only(encoding, at=100, reach=101, last=None):
    """Whether pairs score the same further on, each text ending with its query.

    Args:
        encoding: the encoding.
        at: position of the query.
        reach: how many keys up to the query's own.
        last: positions beyond are left out.
    """
    to = np.arange(at - reach + 1, at + 1)
    scores, bound = pair_scores(encoding, at, to, at + 1)
    for shift in shifts_of(encoding, at):
        if last is not None and at + shift > last:
            continue
        moved, more = pair_scores(encoding, at + shift, to + shift, at + shift + 1)
        if differ(moved, scores, bound + more):
            return False
    return True


def text_keys(module, time, seen, first=0):
    """What a cache holds of the first ``seen`` tokens' keys, in a text of ``time`` tokens."""
    at = torch.arange(time) + first
    x = module.embed(torch.from_numpy(tokens(time))[None].float(), at)[0].detach()
    k = torch.from_numpy(projected(x.double().numpy(), 6))[None].float()
    return [kept[..., :seen, :] for kept in module.keys(k, at, time)]


def long_text(encoding):
    return encoding.longest or 600


def keys_kept(encoding):
    """Whether keys of a short text are, bit for bit, those of a long one."""
    module, time = module_of(encoding), long_text(encoding)
    early, late = text_keys(module, 100, 100), text_keys(module, time, 100)
    return all(torch.equal(a, b) for a, b in zip(early, late, strict=True))


def key_copies(encoding):
    """How many of a key's variants differ."""
    found = []
    for kept in text_keys(module_of(encoding), 200, 200):
        if not any(torch.equal(kept, other) for other in found):
            found.append(kept)
    return len(found)


def keys_placed(encoding):
    """Whether the same tokens have other keys a few positions on."""
    module = module_of(encoding)
    here, there = (text_keys(module, 200, 200, first) for first in (0, 5))
    return not all(torch.equal(a, b) for a, b in zip(here, there, strict=True))


def bias_row(module, at, seed=0):
    """The bias of a query at a position and all keys up to it, (heads, keys); None for none."""
    q = torch.from_numpy(np.random.default_rng(seed).normal(size=(1, HEADS, 1, LANES))).float()
    with torch.no_grad():
        found = module.bias(q, torch.tensor([at]), torch.arange(at + 1), 1.0, at + 1)
    return None if found is None else found.reshape(HEADS, at + 1)


def anew(encoding, at=300):
    """See `properties.Anew`; ``at`` lies beyond the trained length."""
    if not keys_kept(encoding):
        return "keys"
    module = module_of(encoding)
    rows = [bias_row(module, at + step) for step in range(3)]
    if rows[0] is None:
        return "nothing"
    if not torch.equal(rows[0], bias_row(module, at, seed=1)):
        return "product"
    moved = all(moved_on(a, b) for a, b in itertools.pairwise(rows))
    return "one entry" if moved else "row"


def moved_on(before, after):
    """Whether a bias row is the one before moved on by a key, to the rounding of a logarithm."""
    bound = 4 * 2.0**-24 * float(before.abs().max())
    return float((before - after[:, 1:]).abs().max()) <= bound


def angles(encoding, at, to):
    """The angle of each plane that a pair's score shows, (planes, keys), read off its scores.

    A key of one lane scores the cosine with a query of the same lane, and the sine with the
    query a quarter turn on.
    """
    rope = rope_of(encoding)
    # A head per plane and side.
    q = np.zeros((rope.planes, 2, 1, LANES))
    k = np.zeros((rope.planes, 2, len(to), LANES))
    for plane in range(rope.planes):
        first, second = rope.lanes(plane)
        k[plane, ..., first] = 1
        q[plane, 0, :, first] = q[plane, 1, :, second] = 1
    heads = 2 * rope.planes
    q, k = q.reshape(heads, 1, LANES), k.reshape(heads, len(to), LANES)
    scores = encoding.scores(q, k, [at], to, length=at + 1, scale=1.0)
    cosines, sines = scores.reshape(rope.planes, 2, len(to)).swapaxes(0, 1)
    return np.arctan2(-sines, cosines)


def new_angles(encoding, length):
    """Which planes show an angle that training showed none within half a token's step of.

    Training is that of the plain rotation, which the ways to stretch find in a model.
    """
    queries = np.unique(np.geomspace(1, length - TRAINED, 16).astype(int) + TRAINED - 1)
    plain = encodings.Rotary(rope=rope_of(encoding))
    # The last query of a text meets every distance.
    seen = angles(plain, TRAINED - 1, np.arange(TRAINED))
    out = np.zeros(len(seen), dtype=bool)
    steps = np.abs(angles(plain, 1, np.array([0]))[:, 0])
    for at in queries:
        keys = np.unique(np.concatenate([np.arange(0, at + 1, max(1, at // 250)), [at]]))
        shown = angles(encoding, at, keys)
        for plane in range(len(seen)):
            known = np.sort(seen[plane] % (2 * math.pi))
            known = np.concatenate([known[-1:] - 2 * math.pi, known, known[:1] + 2 * math.pi])
            asked = shown[plane] % (2 * math.pi)
            right = np.searchsorted(known, asked).clip(1, len(known) - 1)
            nearest = np.minimum(np.abs(known[right] - asked), np.abs(asked - known[right - 1]))
            # arctan2 of float64 scores, whose angles are below 2^20 radians.
            out[plane] |= bool(nearest.max() > steps[plane] / 2 * (1 + 1e-9) + 1e-9)
    return out


def vectors_beyond(of_positions):
    """Whether vectors past the trained length hold a value outside those of training."""
    seen, beyond = (of_positions(np.arange(*span)) for span in ((0, TRAINED), (TRAINED, 1024)))
    return bool((beyond.max(0) > seen.max(0)).any() or (beyond.min(0) < seen.min(0)).any())


def bias_beyond(encoding):
    """Where biases past the trained length lie: within those of training, or below and falling."""
    parameters = parameters_for(encoding)

    def row(at):
        nothing = np.zeros((HEADS, 1, LANES)), np.zeros((HEADS, at + 1, LANES))
        return encoding.scores(*nothing, [at], np.arange(at + 1), parameters=parameters)[:, 0]

    seen = row(TRAINED - 1)
    step = np.abs(seen[:, 0] - seen[:, 1])[:, None]
    ends = [row(at) for at in (2 * TRAINED, 4 * TRAINED, 64 * TRAINED)]
    low, high = seen.min(1, keepdims=True) - step, seen.max(1, keepdims=True) + step
    if all((end >= low - EPSILON).all() and (end <= high + EPSILON).all() for end in ends):
        return "within"
    farthest = [seen[:, 0], *(end[:, 0] for end in ends)]
    falls = all((b < a).all() for a, b in itertools.pairwise(farthest))
    return "falls" if falls else "new"


def past(encoding):
    """See `properties.Past`."""
    parameters = parameters_for(encoding)
    if encoding.kind == "transformer-xl":
        return "new" if vectors_beyond(lambda at: encoding.distance_vectors(at, WIDTH)) else "?"
    try:
        added = encoding.added(np.array([TRAINED]), WIDTH, parameters)
    except InputError:
        return "error"
    if added is not None:
        new = vectors_beyond(lambda at: encoding.added(at, WIDTH, parameters))
        return "new" if new else "within"
    if information(encoding) == "none":
        return "nothing"
    if rope_of(encoding) is None:
        return bias_beyond(encoding)
    if not new_angles(encoding, 64 * TRAINED).any():
        return "within"
    return "new" if new_angles(encoding, TRAINED + 16).any() else "to a length"


class Operations(TorchDispatchMode):
    """Counts the arithmetic of PyTorch's operators, by their results' shapes."""

    ONE_EACH = ("add", "add_", "sub", "mul", "div", "log1p")

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        name, _, _ = function.__name__.partition(".")
        if function.namespace == "ropewalk":
            assert name == "rotate"
            lanes = 2 * args[1].shape[-1]
            # Two products and a sum per turned lane.
            self.seen.append((name, tuple(out.shape), 3 * lanes * out.numel() // out.shape[-1]))
        elif name in ("mm", "bmm"):
            shape = tuple(out.shape)
            self.seen.append((name, shape, 2 * args[0].shape[-1] * out.numel()))
        elif name in self.ONE_EACH:
            self.seen.append((name, tuple(out.shape), out.numel()))
        return out


def counted(call):
    """The operations of a call: (name, shape of the result, how many)."""
    with torch.no_grad(), Operations() as counter:
        call()
    return counter.seen


def token_operations(encoding):
    """Operations on the lanes of one token's query and key, of one head."""
    module, time = module_of(encoding), 37
    at, q = torch.arange(time), torch.randn(1, HEADS, time, LANES)

    def call():
        module.queries(q, at, time)
        module.keys(q, at, time)
        module.bias(q, at, at, 1.0, time)

    lanes = [n for _, shape, n in counted(call) if len(shape) == 4 and shape[-1] == LANES]
    return sum(lanes) / (HEADS * time)


def embedding_operations(encoding):
    """Operations on one token's embedding."""
    module, time = module_of(encoding), 37
    x = torch.randn(1, time, WIDTH)
    return sum(n for _, _, n in counted(lambda: module.embed(x, torch.arange(time)))) / time


def pair_operations(encoding, first=TRAINED):
    """Operations per query, key and head beside their product, in a text of 60 tokens.

    What grows with the square of the text: the second difference of the count.
    """
    module = module_of(encoding)

    def of(time):
        at, q = torch.arange(first, first + time), torch.randn(1, HEADS, time, LANES)
        bias = []
        total = sum(n for *_, n in counted(lambda: bias.append(module.bias(q, at, at, 1.0))))
        # `attend` adds the bias.
        return total + (0 if bias[0] is None else HEADS * time * time)

    return (of(60) - 2 * of(40) + of(20)) / (2 * 20 * 20) / HEADS


def products(encoding, queries=64, keys=64):
    """Products of a query with a key or a distance that `attend` takes per pair of a block."""
    module = module_of(encoding)
    q, k = torch.randn(1, HEADS, queries, LANES), torch.randn(1, HEADS, keys, LANES)
    at, to = torch.arange(keys - queries, keys), torch.arange(keys)

    def call():
        placed = module.queries(q, at, keys), module.keys(k, to, keys)
        attention._scores(module, *(list(part) for part in placed), at, to)
        module.bias(q, at, to, 1.0, keys)

    found = [shape for name, shape, _ in counted(call) if name == "bmm" and shape[-2] == queries]
    return sum(shape[-1] for shape in found) / keys
