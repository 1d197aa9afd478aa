"""The attention used for long passes, against scores written out."""

from types import SimpleNamespace

import pytest

from ropewalk import InputError
from ropewalk.extend.attention import causal_attention

torch = pytest.importorskip("torch")


def written_out(q, k, v, *, scale, window=None, softcap=None):
    """Scores, mask and softmax as in the definition, in float64."""
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    t = q.shape[2]
    distance = torch.arange(t)[:, None] - torch.arange(t)[None]
    seen = distance >= 0
    if window is not None:
        seen &= distance < window
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return (weights @ v).transpose(1, 2)


@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("window", [None, 1, 7, 1050, 9999])
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("length", [1, 9, 1100])
def test_equals_the_definition(length, kv_heads, window, softcap) -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 4, length, 8, generator=generator, dtype=torch.float64)
    k, v = (
        torch.randn(1, kv_heads, length, 8, generator=generator, dtype=torch.float64)
        for _ in range(2)
    )
    out, weights = causal_attention(
        SimpleNamespace(), q, k, v, None, scaling=0.3, sliding_window=window, softcap=softcap
    )
    wanted = written_out(q, k, v, scale=0.3, window=window, softcap=softcap)
    assert weights is None
    # A soft cap takes its scores through float32: half a unit in scores up to the cap.
    tolerance = 1e-12 if softcap is None else 2.0**-23 * softcap * v.abs().max()
    assert (out - wanted).abs().max() <= tolerance


def test_sinks_masks_and_dropout_are_refused() -> None:
    q = torch.zeros(1, 1, 2, 4)
    with pytest.raises(InputError, match="attention sinks"):
        causal_attention(SimpleNamespace(), q, q, q, None, s_aux=q)
    with pytest.raises(InputError, match="a mask or dropout"):
        causal_attention(SimpleNamespace(), q, q, q, torch.zeros(2, 2))
