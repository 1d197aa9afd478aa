"""The rope of one kind of layer of a config of transformers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..rope import Pairing, Rope
from ..scaling import Plain, Scaling, SteppedNTK
from ..scaling.yarn import temperature
from .config_file import ConfigFile
from .families import TRAINED_LENGTHS
from .hf_axes import axes_of, with_rope
from .hf_heads import Head, Heads
from .hf_scaling import Block, scaling_of
from .plan import Axes, LogNTemperature, QueryTemperature, Sourced
from .spellings import LOCAL_KINDS
from .surroundings import Surroundings


@dataclass(frozen=True)
class RopePlan:
    """A rope with the two other numbers that come from its block."""

    rope: Rope
    softmax_multiplier: float
    query_temperature: QueryTemperature | LogNTemperature | None
    axes: Axes | None = None

    def with_theta(self, theta: float) -> RopePlan:
        """Return the plan of a layer with a base of its own."""
        return self._over(dataclasses.replace(self.rope, theta=theta))

    def _over(self, rope: Rope) -> RopePlan:
        axes = None if self.axes is None else with_rope(self.axes, rope)
        return dataclasses.replace(self, rope=rope, axes=axes)

    def unscaled(self) -> RopePlan:
        """Return the plan of a layer that is not stretched."""
        plain = Plain(original_length=self.rope.original_length)
        plan = self._over(self.rope.with_scaling(plain))
        return dataclasses.replace(plan, softmax_multiplier=1.0)


class RopeReader:
    """Builds the ropes of a config.

    Args:
        config: the config.
        heads: its heads.
        stated_length: the length it says the model can take.
        blocks: the rope block of every layer kind.
        first: the first layer of every kind.
    """

    def __init__(
        self,
        config: ConfigFile,
        heads: Heads,
        stated_length: int | None,
        blocks: Mapping[str, Block | None],
        first: Mapping[str, int],
    ) -> None:
        self.config, self.family, self.values = config, config.family, config.values
        self.heads, self.stated_length, self.blocks = heads, stated_length, blocks
        self.first = first
        self.plain_length = self._trained_length()
        self.pairing = self._pairing()

    def _trained_length(self) -> int | None:
        """Return the trained length of the model without scaling."""
        for switch, path in TRAINED_LENGTHS.items():
            if not self.values.get(switch):
                continue
            value: Any = self.values
            for key in path:
                value = value.get(key) if isinstance(value, Mapping) else None
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return self.stated_length

    def _pairing(self) -> Pairing:
        pairing = self.family.pairing
        origin = f"rule of {self.family.defaults_of}"
        switch = self.family.pairing_switch
        if switch is not None:
            if not self.config.switch(switch, default=True):
                pairing = "half"
            if self.values.get(switch) is not None:
                origin = self.config.origin(switch)
        if pairing == "adjacent" and (switch is not None or self.family.reordered):
            self.config.note(
                "transformers reorders adjacent lanes to halves while running; scores are "
                "equal, but keys in its cache are ordered differently"
            )
        self.config.sources["pairing"] = Sourced(pairing, origin)
        return pairing

    def plan_of(self, kind: str, block: Block) -> RopePlan:
        """Return rope, softmax multiplier and query temperature of a layer kind."""
        head = self._head_of(kind)
        theta = self._theta(kind, block)
        share, rotary_dim = self._rotary_dim(kind, block, head)
        around = Surroundings(self.stated_length, self.plain_length, share)
        try:
            scaling = self._stepped(scaling_of(block, around))
            rope = Rope(
                head_dim=head.size,
                rotary_dim=rotary_dim,
                theta=theta,
                pairing=self.pairing,
                scaling=scaling,
                rotary_offset=head.size - rotary_dim if self.family.tail else head.offset,
                direction=self.family.direction,
            )
            if self.family.axial is None:
                axes: Axes | None = axes_of(self.config, block, rope)
            else:
                axes = self.family.axial(rope, self.values)
        except InputError as error:
            if error.where.startswith(self.config.label):
                raise
            raise error.within(self.config.where(block.path)) from None
        name = self._named("scaling", kind)
        keyed = any(key in block.values for key in ("rope_type", "type"))
        origin = self.config.origin(block.path) if keyed else "no rope block: not stretched"
        if isinstance(scaling, SteppedNTK):
            origin = self.config.origin(str(self.family.stepped_ntk))
        if block.assumed:
            origin = self.config.default_origin
        self.config.sources[name] = Sourced(repr(scaling), origin)
        if "original_length" not in self.config.sources:
            self.config.sources["original_length"] = Sourced(
                scaling.original_length,
                "unknown"
                if scaling.original_length is None
                else "derived: max_position_embeddings"
                if scaling.original_length == self.stated_length
                else "derived: length at which the model's own rule begins",
            )
        return RopePlan(
            rope,
            self._softmax_multiplier(block, rope),
            self._log_n() or self._query_temperature(block, rope),
            axes,
        )

    def _stepped(self, scaling: Scaling) -> Scaling:
        """Return Qwen-1's dynamic NTK where the config turns it on."""
        key = self.family.stepped_ntk
        if key is None or not self.config.switch(key):
            return scaling
        if not isinstance(scaling, Plain):
            raise InputError(
                self.config.where(key),
                found=f"{self.values[key]!r} beside {scaling!r}",
                expected="one way to stretch",
                fix="remove one of the two",
            )
        self.config.note(
            f"texts of up to {self.plain_length} tokens have the plain rope; longer ones multiply "
            f"its base by a power of 3, 7, 15 … as they double ({key})"
        )
        return SteppedNTK(original_length=self.plain_length)

    def _log_n(self) -> LogNTemperature | None:
        """Return log-n attention where the config turns it on."""
        key = self.family.log_n
        if key is None or not self.config.switch(key):
            return None
        if self.plain_length is None or self.plain_length < 2:
            raise InputError(
                self.config.where("seq_length"),
                found=repr(self.plain_length),
                expected="a trained length of at least 2, whose logarithm divides",
                fix="take the value from the model's own config",
            )
        found = LogNTemperature(self.plain_length)
        self.config.sources["query_temperature"] = Sourced("log-n", self.config.origin(key))
        return found

    def _named(self, value: str, kind: str) -> str:
        """Name a value, with the layer type where types differ."""
        several = len({id(block) for block in self.blocks.values()}) > 1
        return f"{value} ({kind})" if several else value

    def _head_of(self, kind: str) -> Head:
        own = self.config.of_layer(self.first.get(kind, -1))
        if self.heads.head.offset:
            plain = own.get("qk_nope_head_dim")
            if plain is None:
                return self.heads.head
            plain = self._lanes("qk_nope_head_dim", plain)
            return Head(plain + self.heads.head.lanes, plain, self.heads.head.lanes)
        value, key = own.get("head_dim"), "per_layer_config.head_dim"
        origin = self.config.origin(key)
        rule = self.family.full_head_dim
        if value is None and rule is not None and kind == "full_attention":
            key, default = rule
            value = self.values.get(key)
            origin = self.config.default_origin if value is None else self.config.origin(key)
            value = default if value is None else value
        if value is None:
            return self.heads.head
        lanes = self._lanes(key, value)
        self.config.sources[f"head_dim ({kind})"] = Sourced(lanes, origin)
        return Head(lanes, 0, lanes)

    def _lanes(self, key: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(
                self.config.where(key),
                found=repr(value),
                expected="a whole number of lanes",
                fix="correct the value",
            )
        return value

    def _theta(self, kind: str, block: Block) -> float:
        config = self.config
        local = self.family.local if kind in LOCAL_KINDS else None
        default, candidates = self.family.theta, list[tuple[Any, str]]()
        inside = block.get("rope_theta")
        if inside is not None:
            candidates.append((inside, f"{block.path}.rope_theta"))
        if local is not None and (local.theta is not None):
            default, keys = local.theta, local.keys
        elif "." in block.path and kind != "full_attention":
            keys = ()  # the top-level theta is that of the full layers
        else:
            keys = config.keys_of("theta")
            for key in config.keys_of("theta_ratio"):
                if self.values.get(key) is not None:
                    ratio = self.config.positive(key, self.values[key])
                    candidates.append((10000 * ratio, f"{key} (10000 x {ratio:g})"))
        candidates += [(self.values[k], k) for k in keys if self.values.get(k) is not None]
        name = self._named("theta", kind)
        if not candidates:
            config.sources[name] = Sourced(default, config.default_origin)
            config.note(
                f"{'rope_theta' if kind != 'sliding_attention' else f'rope_theta of {kind}'} is "
                f"missing; assumed {default:.15g} ({config.default_origin})"
            )
            return default
        value, key = candidates[0]
        assumed = block.assumed and inside is not None
        origin = config.default_origin if assumed else config.origin(key)
        for rival, other in candidates[1:]:
            if rival != value and assumed:
                raise config.contradiction(other, rival, config.default_origin, value)
            if rival != value:
                raise config.contradiction(key, value, other, rival)
            if assumed:
                origin = config.origin(other)  # the file says it too, at its top
        config.sources[name] = Sourced(value, origin)
        return self.config.positive(key, value)

    def _rotary_dim(self, kind: str, block: Block, head: Head) -> tuple[float, int]:
        """Return the share of rotated lanes and their number."""
        config = self.config
        given: list[tuple[Any, str]] = []
        if block.get("partial_rotary_factor") is not None:
            given.append(
                (block.get("partial_rotary_factor"), f"{block.path}.partial_rotary_factor")
            )
        given += [
            (self.values[key], key)
            for key in config.keys_of("partial")
            if self.values.get(key) is not None and ("." not in block.path or not given)
        ]
        for value, key in given:
            self.config.positive(key, value)
            if value > 1:
                raise InputError(
                    config.where(key), found=repr(value), expected="a share of at most 1",
                    fix="correct the value",
                )  # fmt: skip
            if value != given[0][0]:
                raise config.contradiction(given[0][1], given[0][0], key, value)
        share = float(given[0][0]) if given else None
        if head.offset:
            whole = config.values.get("head_dim")
            shares = [1.0, head.lanes / head.size]
            shares += [head.lanes / whole] if isinstance(whole, int) and whole else []
            if share is not None and share not in shares:
                config.note(
                    f"{given[0][1]} {share:g} is not used: with latent attention the rotated "
                    f"lanes are qk_rope_head_dim {head.lanes}"
                )
            return 1.0, head.lanes
        if block.kind == "proportional":
            config.sources[self._named("rotary_dim", kind)] = Sourced(
                head.size, "derived: head_dim (proportional rope spans the whole head)"
            )
            return 1.0 if share is None else share, head.size
        lanes = config.count("rotary_dim")
        if lanes is None and self.family.rotary_dim is not None and share is None:
            lanes = Sourced(self.family.rotary_dim, config.default_origin)
            config.note(f"rotary_dim is missing; assumed {lanes.value} ({lanes.source})")
        name = self._named("rotary_dim", kind)
        if lanes is not None:
            if share is not None and int(head.size * share) != lanes.value:
                raise config.contradiction(given[0][1], share, "rotary_dim", lanes.value)
            config.sources[name] = lanes
            return 1.0, int(lanes.value)
        if self.family.partial is None and share not in (None, 1.0):
            return self._unread_share(block, given[0], head, name)
        origin = config.origin(given[0][1]) if given else config.default_origin
        if block.get("partial_rotary_factor") is not None:
            origin = block.source("partial_rotary_factor")
        if share is None:
            share = 1.0 if self.family.partial is None else self.family.partial
            if share != 1.0:
                config.note(f"partial_rotary_factor is missing; assumed {share:g} ({origin})")
        rotary_dim = int(head.size * share)
        if rotary_dim % 2 and share != 1.0:
            key = given[0][1] if given else "partial_rotary_factor"
            raise InputError(
                config.where(key),
                found=f"{share:g}: rotary_dim={rotary_dim} is odd (head_dim {head.size} * "
                f"{share:g}); must be even",
                expected="a share that leaves an even number of lanes",
                fix=f"use {2 * max(rotary_dim // 2, 1)} lanes, or check head_dim",
            )
        if share == 1.0:
            origin = "derived: head_dim (all lanes)"
        else:
            origin = f"derived: head_dim {head.size} x {share:g} ({origin})"
        config.sources[name] = Sourced(rotary_dim, origin)
        return share, rotary_dim

    def _unread_share(
        self, block: Block, given: tuple[Any, str], head: Head, name: str
    ) -> tuple[float, int]:
        """A share in a family whose code turns all lanes."""
        share, key = given
        if block.kind != "default":
            raise InputError(
                self.config.where(key),
                found=f"{share!r} with scaling {block.kind}",
                expected=f"1.0, because {self.family.defaults_of} turns all lanes",
                fix="remove the key, or name the right family with --assume-family",
            )
        # Gemma 4 written flat: the share is that of the full layers, whose own block has it.
        elsewhere = any(
            isinstance(part, Mapping) and part.get("partial_rotary_factor") == share
            for part in (self.family.block or {}).values()
        )
        if not elsewhere:
            self.config.note(
                f"{key} {share:g} is not used: the code of {self.family.defaults_of} turns all "
                "lanes"
            )
        self.config.sources[name] = Sourced(head.size, "derived: head_dim (all lanes)")
        return 1.0, head.size

    def _softmax_multiplier(self, block: Block, rope: Rope) -> float:
        """Latent attention: the square of YaRN's temperature with slope mscale_all_dim."""
        slope = block.get("mscale_all_dim")
        if not slope or block.kind == "default":
            return 1.0
        if self.family.latent is None:
            self.config.note(
                "mscale_all_dim also multiplies the softmax in models with latent attention; "
                "this family's code does not do that"
            )
            return 1.0
        value = temperature(rope.scaling.stretch, slope) ** 2
        self.config.sources["softmax_multiplier"] = Sourced(
            value, f"derived: (0.1 * {block.path}.mscale_all_dim * ln(factor) + 1)^2"
        )
        return value

    def _query_temperature(self, block: Block, rope: Rope) -> QueryTemperature | None:
        beta = block.get("llama_4_scaling_beta")
        if beta is None:
            return None
        if self.family.temperature != "block":
            self.config.note(
                f"{block.path}.llama_4_scaling_beta is not used by {self.family.defaults_of}"
            )
            return None
        if beta == 0:
            self.config.note(f"{block.path}.llama_4_scaling_beta 0: queries are not multiplied")
            return None
        self.config.sources["query_temperature"] = Sourced(
            beta, block.source("llama_4_scaling_beta")
        )
        original = rope.original_length
        if original is None:
            raise InputError(
                block.where("original_max_position_embeddings"),
                found="nothing",
                expected="a length, because llama_4_scaling_beta needs one",
                fix="add it",
            )
        return QueryTemperature(self.config.positive("llama_4_scaling_beta", beta), original)
