"""Protocols: which tokens are scored and what they see, by hand; the cells that come of it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from ropewalk import InputError
from ropewalk.extend.loading import builtin_model
from ropewalk.extend.measure import measure
from ropewalk.extend.options import Options
from ropewalk.extend.protocols import PROTOCOLS, Reach

TEN = tuple(range(10))


def rows(protocol: str, tokens: tuple[int, ...], length: int, crops: bool = False):
    reach = Reach(length=length, original=4, scored=2, crops=crops)
    return PROTOCOLS[protocol].passes(tokens, reach)


def targets(passes, tokens) -> dict[int, int]:
    """Scored token → how many are before it in its pass; tokens are their own places."""
    out: dict[int, int] = {}
    for row, scored in passes:
        assert 0 < scored < len(row)
        assert row == tokens[row[0] : row[-1] + 1]
        for place in range(len(row) - scored, len(row)):
            assert row[place] not in out
            out[row[place]] = place
    return out


@pytest.mark.parametrize(
    ("protocol", "length", "crops", "wanted"),
    [
        ("fixed", 6, False, [((4, 5, 6, 7, 8, 9), 2)]),
        ("fixed", 10, False, [(TEN, 2)]),
        ("fixed", 10, True, [((6, 7, 8, 9), 2)]),
        ("prefix", 6, False, [((0, 1, 2, 3, 4, 5), 5)]),
        ("prefix", 6, True, [((2, 3, 4, 5), 2)]),
        ("non-overlapping", 4, False, [((0, 1, 2, 3), 3), ((4, 5, 6, 7), 3), ((8, 9), 1)]),
        # The last token alone has nothing before it: it is no pass.
        ("non-overlapping", 3, False, [((0, 1, 2), 2), ((3, 4, 5), 2), ((6, 7, 8), 2)]),
        ("non-overlapping", 10, True, [((0, 1, 2, 3), 3), ((4, 5, 6, 7), 3), ((8, 9), 1)]),
        ("sliding", 4, False, [((6, 7, 8, 9), 2), ((4, 5, 6, 7), 2), ((2, 3, 4, 5), 1)]),
        ("sliding", 10, False, [(TEN, 5)]),
        ("sliding", 10, True, [((6, 7, 8, 9), 2), ((4, 5, 6, 7), 2), ((2, 3, 4, 5), 1)]),
        ("sliding", 6, False, [((4, 5, 6, 7, 8, 9), 3), ((1, 2, 3, 4, 5, 6), 2)]),
    ],
)
def test_passes_by_hand(protocol, length, crops, wanted) -> None:
    assert rows(protocol, TEN, length, crops) == wanted


@pytest.mark.parametrize("count", [2, 3, 10, 33, 64])
def test_sliding_scores_the_same_tokens_at_every_length(count) -> None:
    tokens = tuple(range(count))
    wanted = set(range(count - count // 2, count))
    for length in range(2, 2 * count):
        found = targets(rows("sliding", tokens, length), tokens)
        assert set(found) == wanted
        for place, before in found.items():
            assert before >= min(place, length // 2)


@pytest.mark.parametrize("count", [2, 3, 10, 33, 64])
def test_side_by_side_covers_the_whole(count) -> None:
    tokens = tuple(range(count))
    for length in range(2, 2 * count):
        found = targets(rows("non-overlapping", tokens, length), tokens)
        # All but the first token of each window, which nothing is before.
        assert set(found) == {n for n in tokens if n % length}
        assert all(before == place % length for place, before in found.items())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_cropping_never_sees_more_than_it_was_trained_on(protocol) -> None:
    tokens = tuple(range(33))
    for length in (4, 8, 16, 33):
        cropped = rows(protocol, tokens, length, crops=True)
        assert max(len(row) for row, _ in cropped) == 4
        if protocol != "prefix":
            assert cropped == rows(protocol, tokens, 4)


def test_every_protocol_says_its_rule() -> None:
    for protocol in PROTOCOLS.values():
        for text in (protocol.title, protocol.rule):
            filled = text.format(scored=1024, original=4096)
            assert "{" not in filled
        assert "4,096" in protocol.rule.format(scored=1024, original=4096)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Python-like text, twice the length that the packaged model was trained on."""
    folder = tmp_path_factory.mktemp("written")
    out = []
    for index in range(2):
        line = f"def f{index}(x):\n    return x + {index}\n\n\n"
        path = folder / f"{index}.txt"
        path.write_text((line * 60)[:1100])
        out.append(path)
    return out


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_cells_are_the_means_of_a_direct_computation(
    protocol: str, written: list[Path], tmp_path: Path
) -> None:
    """The packaged byte model, by transformers alone, on the tokens that the protocol names."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    original, length = 512, 1024
    options = Options(
        lengths=(original, length), methods=("crop", "none"), texts=tuple(written),
        protocol=protocol, documents=2, trials=0, short=False, dtype="float32",
    )  # fmt: skip
    m = measure(None, options, journal_folder=tmp_path)
    assert (m.original_length, m.scored, m.retrieval) == (original, 128, ())
    model = transformers.AutoModelForCausalLM.from_pretrained(
        builtin_model(), dtype=torch.float32
    ).eval()
    texts = [path.read_bytes()[:length] for path in written[: len(m.documents)]]
    assert len(texts) == (1 if protocol == "prefix" else 2)

    def losses(row: bytes) -> list[float]:
        """Nats of every byte but the first."""
        tokens = torch.tensor([list(row)])
        with torch.no_grad():
            found = model(input_ids=tokens, use_cache=False).logits.double().log_softmax(-1)
        return (-found[:, :-1].gather(-1, tokens[:, 1:, None])).flatten().tolist()

    def of(text: bytes, window: int, cropped: bool) -> tuple[list[float], list[float]]:
        """All that counts as nats, and as bits per byte."""
        if protocol == "fixed":
            tail = losses(text[-window:])[-128:]
            return tail, tail
        if protocol == "prefix":
            whole = losses(text[:window] if not cropped else text[:length][-original:])
            return (whole[-128:] if cropped else whole), whole[-128:]
        if protocol == "non-overlapping":
            parts = [losses(text[i : i + window]) for i in range(0, length, window)]
            every = [loss for part in parts for loss in part]
            return every, every
        half = []
        for start in range(length // 2, length, window // 2):
            end = start + window // 2
            half += losses(text[max(0, end - window) : end])[-window // 2 :]
        return half, half

    for method, window, at in (
        ("none", original, original), ("none", length, length), ("crop", original, length),
    ):  # fmt: skip
        cell = m.cell(method, at)
        assert cell is not None
        per_text = [of(text, window, method == "crop") for text in texts]
        wanted = [sum(nats) / len(nats) for nats, _ in per_text]
        bits = [sum(counted) / len(counted) / math.log(2) for _, counted in per_text]
        # transformers forms angles of up to 1,024 radians in float32: off by 2^-24 of that, and
        # so are scores and, over a few layers, logits; float32 sums come on top.
        tolerance = 16 * length * 2.0**-24
        assert cell.per_document == pytest.approx(wanted, abs=tolerance)
        assert cell.nats == pytest.approx(sum(wanted) / len(wanted), abs=tolerance)
        assert cell.bits_per_byte == pytest.approx(sum(bits) / len(bits), abs=2 * tolerance)


def test_an_unknown_protocol_is_refused_by_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from ropewalk.cli.main import main

    with pytest.raises(SystemExit) as end:
        main(["measure", "--protocol", "windows"])
    assert end.value.code == 2
    assert "'non-overlapping'" in capsys.readouterr().err


def test_retrieval_is_for_fixed_targets(written: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    options = Options(
        lengths=(512,), methods=("none",), texts=tuple(written), protocol="sliding",
        documents=1, trials=4, dtype="float32",
    )  # fmt: skip
    assert not measure(None, options, journal_folder=tmp_path).retrieval
    with pytest.raises(InputError, match="no text of"):
        measure(None, Options(lengths=(4096,), texts=tuple(written)), journal_folder=tmp_path)
