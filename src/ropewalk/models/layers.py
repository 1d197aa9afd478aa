"""Which layer is of which kind, which have no rope, and their windows."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InputError
from .config_file import ConfigFile
from .plan import Sourced
from .spellings import LAYER_KINDS, LOCAL_KINDS, WITHOUT_POSITIONS, hint

# What the letters of a pattern such as "LLLG" (EXAONE 4) stand for: local and global.
_LETTERS = {"L": "sliding_attention", "G": "full_attention"}
# A config with more layers is no model; the number bounds the work that a file can ask for.
_MOST_LAYERS = 2048


@dataclass(frozen=True)
class LayerKind:
    """One layer before its rope is known; ``theta`` is its own base, where it has one."""

    kind: str
    has_rope: bool
    window: int | None
    theta: float | None = None


def layer_kinds(config: ConfigFile) -> list[LayerKind]:
    """Return kind, rope or none, and window of every layer, in order.

    Raises:
        InputError: counts that do not fit, or layer types that are not known.
    """
    layers = config.count_or("layers", config.family.sizes.layers)
    if layers.value > _MOST_LAYERS:
        raise InputError(
            config.where("num_hidden_layers"),
            found=str(layers.value),
            expected=f"at most {_MOST_LAYERS}",
            fix="correct the value",
        )
    config.sources["layers"] = layers
    count: int = layers.value
    window = _window(config)
    roped = _rope_by_index(config, count)
    kinds = _kinds(config, count, window, roped)
    thetas = _layer_thetas(config, count)
    out = []
    for index, (kind, by_index) in enumerate(zip(kinds, roped, strict=True)):
        local = kind in LOCAL_KINDS
        has_rope = by_index and kind not in WITHOUT_POSITIONS
        if thetas is not None:
            has_rope = has_rope and thetas[index] != 0
        elif config.family.no_rope == "not_sliding":
            has_rope = has_rope and local and window is not None
        elif config.family.no_rope == "full_if_windowed":
            has_rope = has_rope and (local or window is None)
        reach = _own_window(config, index, window) if local else None
        theta = thetas[index] if thetas is not None and has_rope else None
        if config.family.layer_theta == "switch":
            theta = None
        out.append(LayerKind(kind, has_rope, reach, theta))
    if config.family.no_rope != "never" and not all(layer.has_rope for layer in out):
        without = sum(not layer.has_rope for layer in out)
        config.sources["layers without rope"] = Sourced(without, _no_rope_origin(config))
    return out


def _no_rope_origin(config: ConfigFile) -> str:
    if config.family.no_rope == "listed":
        if config.values.get("no_rope_layers"):
            return config.origin("no_rope_layers (1 means rope)")
        return f"derived: every {_interval(config)}th layer (no_rope_layer_interval)"
    return f"rule of {config.family.defaults_of}: full attention layers have no rope"


def _window(config: ConfigFile) -> int | None:
    """Return the window of the layers that have one, or None."""
    rule = config.family.window
    if rule is None:
        unread = config.given("window")
        if unread is not None and unread.value:
            config.note(
                f"the window of {unread.value} is not used: {config.family.defaults_of} reads none"
            )
        return None
    # A null window means none; only a missing key means the default.
    absent = not any(key in config.values for key in config.keys_of("window"))
    found = config.count("window", zero=True)
    if found is None:
        if not absent or rule.default is None:
            return None
        found = Sourced(rule.default, config.default_origin)
    window: int = found.value
    if rule.switch is not None and not config.switch(rule.switch):
        if not absent:
            config.note(f"{rule.switch} is not set, so the window of {window} is not used")
        return None
    if window == 0:
        return None
    if rule.each_side:
        config.note(
            f"the window of {window} tokens is {window // 2} to each side; shown are the "
            f"{window // 2 + 1} tokens back, the query itself included"
        )
        window = window // 2 + 1
    if rule.halved_by is not None and config.switch(rule.halved_by):
        config.note(f"{rule.halved_by} is set: the window of {window} reaches half to each side")
        window = window // 2 + 1
    config.sources["window"] = Sourced(window, found.source)
    return window


def _interval(config: ConfigFile) -> int:
    value = config.values.get("no_rope_layer_interval")
    if value is None:
        return 4
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(
            config.where("no_rope_layer_interval"),
            found=repr(value),
            expected="a whole number above 0",
            fix="with 4, layers 3, 7, 11 … have no rope",
        )
    return value


def _own_window(config: ConfigFile, index: int, window: int | None) -> int | None:
    """Return the window of one layer: its own, or that of all."""
    own = config.of_layer(index).get("sliding_window", window)
    if own is not None and (not isinstance(own, int) or isinstance(own, bool) or own < 0):
        raise InputError(
            config.where(f"per_layer_config.{index}.sliding_window"),
            found=repr(own),
            expected="a whole number, 0 or more, or null",
            fix="correct the value",
        )
    return own or None


def _layer_thetas(config: ConfigFile, count: int) -> list[float] | None:
    """Return the base of every layer, 0 for no rope, or None where they are not listed."""
    listed = config.values.get("layer_rope_theta")
    if config.family.layer_theta is None or listed is None:
        return None
    if not isinstance(listed, list) or len(listed) != count:
        raise InputError(
            config.where("layer_rope_theta"),
            found=f"{len(listed)} entries" if isinstance(listed, list) else repr(listed),
            expected=f"{count} bases, one per layer, 0 for no rope",
            fix="give one entry per layer",
        )
    config.sources["theta of layers"] = Sourced("as listed", config.origin("layer_rope_theta"))
    return [0.0 if not value else config.positive("layer_rope_theta", value) for value in listed]


def _rope_by_index(config: ConfigFile, count: int) -> list[bool]:
    """Return for every layer whether the lists of the config give it a rope."""
    condition = config.family.condition
    if condition is not None and condition.otherwise is None:
        found = config.values.get(condition.key, condition.default)
        if found not in condition.values:
            config.note(f"{condition.key} is {found!r}: the layers have no rope")
            return [False] * count
    if config.family.no_rope != "listed":
        return [config.family.no_rope != "always"] * count
    listed = config.values.get("no_rope_layers")
    if not listed:
        step = _interval(config)
        return [(index + 1) % step != 0 for index in range(count)]
    if (
        not isinstance(listed, list)
        or len(listed) != count
        or any(entry not in (0, 1) for entry in listed)
    ):
        raise InputError(
            config.where("no_rope_layers"),
            found=f"{len(listed)} entries" if isinstance(listed, list) else repr(listed),
            expected=f"{count} entries of 0 and 1, one per layer; 1 means rope, 0 none",
            fix="give one entry per layer",
        )
    return [bool(entry) for entry in listed]


def _kinds(config: ConfigFile, count: int, window: int | None, roped: list[bool]) -> list[str]:
    rule = config.family.layers
    listed = config.values.get("layer_types")
    if listed is None:
        listed = config.values.get("layers_block_type")
    if isinstance(listed, list) and rule.form != "uniform":
        return _listed_kinds(config, listed, count, window)
    if isinstance(listed, list) and any(kind != "full_attention" for kind in listed):
        config.note(f"layer_types is in the file, but {config.family.defaults_of} reads none")
    local = rule.others if window is not None or rule.others in WITHOUT_POSITIONS else None
    if rule.form == "uniform":
        return ["sliding_attention" if window is not None else "full_attention"] * count
    if rule.form == "period":
        return _periodic(config, count, local)
    if rule.form == "from_layer":
        start = _first_local(config)
        flags = [window is not None and index >= start for index in range(count)]
    elif rule.form == "alternate_below":
        start = _first_local(config)
        flags = [window is not None and index % 2 == 0 and index < start for index in range(count)]
    elif rule.form == "listed":
        full = _indices(config)
        flags = [full is not None and index not in full for index in range(count)]
    elif rule.form == "marked":
        marked = _indices(config)
        if marked is None:
            raise InputError(
                config.where(rule.key or ""),
                found="nothing",
                expected="the indices of the cross attention layers",
                fix="add the list of the checkpoint's own config",
            )
        flags = [index in marked for index in range(count)]
    elif rule.form == "computed":
        assert rule.kinds is not None
        return rule.kinds(config.values, count)
    elif rule.form == "without_rope":
        flags = [window is not None and not rope for rope in roped]
    else:
        flags = [window is not None and rope for rope in roped]
    return [rule.others if flag else "full_attention" for flag in flags]


def _indices(config: ConfigFile) -> set[int] | None:
    """Return the layers that the rule's key lists, or None where it is missing."""
    key = config.family.layers.key or ""
    value = config.values.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(index) is int for index in value):
        raise InputError(
            config.where(key),
            found=repr(value),
            expected="a list of layer indices",
            fix="take the list from the model's own config",
        )
    return set(value)


def _first_local(config: ConfigFile) -> int:
    key = config.family.layers.key or ""
    value = config.values.get(key)
    if value is None:
        return config.family.layers.every
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(
            config.where(key),
            found=repr(value),
            expected="the index of a layer",
            fix="correct the value",
        )
    return value


def _periodic(config: ConfigFile, count: int, local: str | None) -> list[str]:
    rule = config.family.layers
    every: object = rule.every
    if rule.key is not None and config.values.get(rule.key) is not None:
        every = config.values[rule.key]
    if local is None:
        return ["full_attention"] * count
    if isinstance(every, str) and every and set(every) <= set(_LETTERS):
        return [_LETTERS[every[index % len(every)]] for index in range(count)]
    if not isinstance(every, int) or isinstance(every, bool) or every < 0:
        raise InputError(
            config.where(rule.key or "layer_types"),
            found=repr(every),
            expected="a whole number or letters such as 'LLLG' (local, global)",
            fix="give the length of the period of layers",
        )
    if every == 0:
        return [local] * count
    at = 0 if rule.first else every - 1
    return ["full_attention" if index % every == at % every else local for index in range(count)]


def _listed_kinds(
    config: ConfigFile, listed: list[object], count: int, window: int | None
) -> list[str]:
    config.sources["layer types"] = Sourced("as listed", config.origin("layer_types"))
    if len(listed) != count:
        raise InputError(
            config.where("layer_types"),
            found=f"{len(listed)} entries",
            expected=f"{count}, one per layer",
            fix="give one entry per layer",
        )
    for index, kind in enumerate(listed):
        if kind not in LAYER_KINDS:
            near = hint(str(kind), LAYER_KINDS)
            raise InputError(
                config.where(f"layer_types[{index}]"),
                found=repr(kind),
                expected="one of " + ", ".join(LAYER_KINDS),
                fix=f"did you mean {near!r}?" if near else "correct the name",
            )
    own = any(config.of_layer(index).get("sliding_window") for index in range(count))
    if "sliding_attention" in listed and window is None and not own:
        config.note("layer_types names sliding layers, but no window is set: they reach all tokens")
    if window is not None and not LOCAL_KINDS & set(listed):
        config.note(f"a window of {window} is set, but layer_types has no sliding layer")
    return [str(kind) for kind in listed]
