"""The installed diffusers: its classes turn lanes as stored, and have the defaults of the rows.

Not collected where diffusers is absent, see ``conftest``.
"""

from __future__ import annotations

import inspect
import json

import diffusers
import numpy as np
import pytest
from diffusers.models import transformers
from diffusers.models.modeling_utils import ModelMixin
from diffusers_classes import CASES, built, rotated
from test_diffusers import ROTATIONS, config, positions_of

from ropewalk.models.diffusers import read_diffusers
from ropewalk.models.rows.diffusers import DENOISERS
from ropewalk.models.rows.diffusers_without_rope import WITHOUT_ROPE

NEEDED = {
    "CogVideoXTransformer3DModel": {"use_rotary_positional_embeddings": True},
    "ConsisIDTransformer3DModel": {"use_rotary_positional_embeddings": True},
    "OmniGenTransformer2DModel": {
        "rope_scaling": {"short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
    },
}


# diffusers warns of its own old import.
@pytest.mark.filterwarnings("ignore:.*FluxPosEmbed:FutureWarning")
@pytest.mark.parametrize("name", sorted(CASES))
def test_the_stored_rotation_is_that_of_the_installed_class(name: str) -> None:
    stored = ROTATIONS[name]
    wide = len(stored["rotated"][0])
    model = built(name)
    where, out = rotated(name, wide, model)
    assert where.tolist() == pytest.approx(np.array(stored["positions"]), rel=1e-12)
    # Other builds of PyTorch round cos in the last place,
    # and of an angle of 15,708 (LTX) they round more than that.
    np.testing.assert_allclose(out, stored["rotated"], atol=2.0**-9 if "LTX" in name else 2.0**-20)
    # The whole config that diffusers saves says the same as the part that the case gives.
    whole = {k: v for k, v in dict(model.config).items() if not k.startswith("_")}
    whole = json.loads(json.dumps(whole, default=str))
    assert positions_of(config(name, **whole)) == positions_of(config(name, **CASES[name].config))


@pytest.mark.parametrize("name", sorted(DENOISERS))
def test_defaults_of_a_row_are_those_of_the_class(name: str) -> None:
    parameters = inspect.signature(getattr(diffusers, name).__init__).parameters
    defaults = {
        key: p.default
        for key, p in parameters.items()
        if p.default is not inspect.Parameter.empty and p.default is not None
    }
    row, needed = DENOISERS[name], NEEDED.get(name, {})
    keys = [key for key, _ in row.layers]
    keys += [key[0] for key in (row.head_dim, row.width, row.total) if key is not None]
    keys += [] if row.total is not None else [row.heads[0]]
    keys += [] if row.kv_heads is None else [row.kv_heads[0]]
    assert set(keys) <= set(parameters)
    bare = read_diffusers(config(name, **needed), "config.json")
    given = read_diffusers(config(name, **{**defaults, **needed}), "config.json")
    assert bare.layers == given.layers
    assert (bare.heads, bare.kv_heads, bare.value_dim) == (
        given.heads, given.kv_heads, given.value_dim,
    )  # fmt: skip


def test_every_transformer_is_read_or_refused_by_name() -> None:
    for name in dir(transformers):
        made = getattr(transformers, name)
        if isinstance(made, type) and issubclass(made, ModelMixin):
            assert name in DENOISERS or name in WITHOUT_ROPE, name
