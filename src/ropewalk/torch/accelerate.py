"""Putting Ropewalk's rotation into a loaded transformers model, and taking it out again.

The attention code of transformers calls a function of its own file, mostly named
``apply_rotary_pos_emb``, with tables of cos and sin that the model's rotary module made once
per forward pass. `accelerate` leaves that code as it stands and changes two things:

* The rotary modules of the model get a forward hook, which cuts the tables to one value per
  plane, in float32, and hangs them on the tensors that the module returns.
* The function in the file is replaced by one which rotates with those tables where it finds
  them, and otherwise calls the function that was there: for other models of the same file,
  and wherever the tables got lost on the way, as in a move to another device.

So a call is either Ropewalk's rotation or the model's own, never a mixture. Both kinds of
code are recognised by what they do (`recognition`, `rotary_tables`), not by their names, so
models whose code does not come from transformers are served too; what is not recognised is
left alone.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

import torch

from ..errors import InputError
from .acceleration_report import LeftAlone, Report, TakenOver
from .functional import rotate, rotate_, rotate_qk, rotate_qk_
from .recognition import AXIS, Recognised, gathered, recognise, takes_tables
from .rotary_tables import CUT, Tables, rotary_call, tables_of

__all__ = ["LeftAlone", "Report", "TakenOver", "accelerate", "restore"]

_HUNG = "_ropewalk_tables"
"""The attribute under which the tables hang on what a rotary module returns."""


class _Hung:
    """The tables of one forward pass, one value per plane."""

    __slots__ = ("cos", "in_place", "layout", "sin", "version")

    def __init__(self, cos: Any, sin: Any, layout: str, in_place: bool, version: int) -> None:
        self.cos, self.sin = cos, sin
        self.layout, self.in_place, self.version = layout, in_place, version


def _hanging(table: Any) -> _Hung | None:
    found: _Hung | None = getattr(table, _HUNG, None)
    return found


def _version(tables: tuple[Any, ...]) -> int:
    # What writes into the tables after they were hung up makes them another's. A trace has no
    # writes of that kind, and inference tensors do not count them.
    if torch.compiler.is_compiling() or any(t.is_inference() for t in tables):
        return 0
    return sum(t._version for t in tables)


class _Hook:
    """The forward hook of a rotary module.

    A copy or a pickle of the model carries a hook that does nothing: a copy is a model of its
    own, to be accelerated by itself.
    """

    def __init__(self, tables: Tables, in_place: bool) -> None:
        self._tables, self._in_place = tables, in_place

    def __call__(self, module: Any, args: Any, output: Any) -> Any:
        t = self._tables
        made = output if isinstance(output, tuple) else (output,)
        traced = torch.compiler.is_compiling()
        if any(table.requires_grad for table in made):
            return None  # learned frequencies: their gradient takes the model's own way
        if traced:
            # A trace lets attributes hang on what one operation returned, not on the pieces
            # of a split.
            made = tuple(table.view_as(table) for table in made)
        cos, sin = made[t.cos], made[t.sin]
        wide = torch.float64 if cos.dtype in (torch.float64, torch.complex128) else torch.float32
        # A copy always: a view would keep the tensor it hangs on alive for ever.
        cut = [
            half.to(wide, copy=True, memory_format=torch.contiguous_format)
            for half in CUT[t.layout](cos, sin)
        ]
        if cos.dim() == 3 and cos.shape[0] == 1:
            cut = [half[0] for half in cut]
        hung = _Hung(cut[0], cut[1], t.layout, self._in_place, _version((cos, sin)))
        for table in made:
            setattr(table, _HUNG, hung)
        if not traced:
            return None  # the output stays what it is
        return made if isinstance(output, tuple) else made[0]

    def __reduce__(self) -> Any:
        return (_InertHook, ())


class _InertHook:
    """What `_Hook` becomes in a copy of the model."""

    def __call__(self, module: Any, args: Any, output: Any) -> None:
        """Leave the tables as they are."""


class _Site:
    """One function in one file: what is there, what it does, and for whom it is replaced."""

    def __init__(self, namespace: dict[str, Any], name: str, found: Recognised) -> None:
        self.namespace, self.name, self.found = namespace, name, found
        self.original = namespace[name]
        self.users: set[int] = set()
        self.dispatch = _dispatcher(self.original, found)

    def enter(self, user: int) -> None:
        if not self.users:
            self.namespace[self.name] = self.dispatch
        self.users.add(user)

    def leave(self, user: int) -> None:
        self.users.discard(user)
        # What somebody else has put over ours is theirs to take away; ours below it does
        # nothing without tables.
        if not self.users and self.namespace.get(self.name) is self.dispatch:
            self.namespace[self.name] = self.original


def _dispatcher(original: Any, found: Recognised) -> Callable[..., Any]:
    """Return a function that rotates with hung-up tables, or calls the original."""
    a = found.arguments
    options = {AXIS} if found.axis is not None else set()

    def dispatch(*args: Any, **kwargs: Any) -> Any:
        if len(args) == a.count and kwargs.keys() <= options:
            hung = _hanging(args[a.cos])
            if hung is not None and _hanging(args[a.sin]) is hung:
                turned = _turn(found, hung, args, kwargs.get(AXIS, found.axis))
                if turned is not None:
                    return turned
        return original(*args, **kwargs)

    return functools.wraps(original)(dispatch)


def _turn(found: Recognised, hung: _Hung, args: tuple[Any, ...], axis: int | None) -> Any:
    """Rotate, or return None where this call is not one that was recognised."""
    a = found.arguments
    xs, table = args[: a.turned], args[a.cos]
    x = xs[0]
    turn = found.turns.get(hung.layout)
    if turn is None or not all(isinstance(other, torch.Tensor) for other in xs):
        return None
    order = found.orders.get((axis, x.dim(), table.dim()))
    if order is None or hung.version != _version((table, args[a.sin])):
        return None
    if table.dtype != x.dtype and not found.keeps_dtype:
        return None
    offset = 0
    width = 2 * hung.cos.shape[-1]
    if width != x.shape[-1]:
        if found.place is None or width > x.shape[-1]:
            return None
        offset = 0 if found.place == "lead" else x.shape[-1] - width
    time = -3 if order == "time_heads" else -2
    for other in xs:
        if (
            other.dim() != x.dim()
            or other.shape[-1] != x.shape[-1]
            or other.shape[time] != hung.cos.shape[-2]
            or other.dtype != x.dtype
            or other.device != hung.cos.device
            or (hung.cos.dim() == 3 and other.shape[0] != hung.cos.shape[0])
        ):
            return None
    options: dict[str, Any] = {
        "pairing": turn.pairing,
        "order": order,
        "rotary_offset": offset,
        "inverse": turn.inverse,
    }
    overwrite = not (torch.is_grad_enabled() or torch.compiler.is_compiling())
    if turn.gathers:
        xs = tuple(gathered(other) for other in xs)  # copies: nobody else sees them
    else:
        overwrite = overwrite and hung.in_place and not any(_overlaps(other) for other in xs)
    batched = [other if other.dim() == 4 else other[None] for other in xs]
    out: Any
    if len(batched) == 2:
        both = rotate_qk_ if overwrite else rotate_qk
        out = both(batched[0], batched[1], hung.cos, hung.sin, **options)
    else:
        one = rotate_ if overwrite else rotate
        out = (one(batched[0], hung.cos, hung.sin, **options),)
    if x.dim() == 3:
        out = tuple(y[0] for y in out)
    return out if a.turned == 2 else out[0]


def _overlaps(x: Any) -> bool:
    """Tell whether lanes of x share memory, as in an expanded tensor."""
    return any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True))


@dataclass
class _Accelerated:
    """What was done to one model."""

    user: int
    sites: list[_Site]
    hooks: list[Any] = field(default_factory=list)


_LOCK = threading.RLock()
_SITES: dict[tuple[int, str], _Site] = {}
_MODELS: weakref.WeakKeyDictionary[Any, tuple[_Accelerated, Any]] = weakref.WeakKeyDictionary()
_NEXT_USER = iter(range(1, 2**63))


def accelerate(model: Any, *, in_place: bool = False) -> Report:
    """Make a loaded model rotate its queries and keys with Ropewalk.

    Only the rotation changes: the tables are those that the model computes, in its precision.
    In float32 each rotated lane differs from the model's own by at most 6 roundings; in
    bfloat16 and float16 Ropewalk rounds once where the model rounds after every product and
    sum. Gradients and `torch.compile` work; compiled models of families that rotate by a complex
    product (Llama 4, DeepSeek-V2) keep their own rotation, since a trace loses what hangs on
    their tables. Weights, state_dict and configuration stay as they are. A copy of an
    accelerated model (deepcopy, pickle) is not accelerated, and reading its pickle takes this
    package. Calling it again is harmless.

    Args:
        model: a transformers model, or any `torch.nn.Module` whose code rotates the same way.
        in_place: rotate queries and keys where they lie, which saves memory traffic, whenever
            gradients are off and nothing is being compiled. A forward hook that keeps what
            the projections of queries and keys return then sees rotated values, and an
            attention which uses its queries or keys once more after rotating them (none of
            the families in the tests does) would compute something else.

    Returns:
        What was taken over and what was left alone, and why. Nothing is raised for a model
        in which nothing is recognised.

    Raises:
        InputError: ``model`` is not a PyTorch module.
    """
    if not isinstance(model, torch.nn.Module):
        raise InputError(
            "model",
            found=type(model).__name__,
            expected="a torch.nn.Module",
            fix="load it with transformers first, e.g. AutoModelForCausalLM.from_pretrained",
        )
    with _LOCK:
        restore(model)
        left: list[LeftAlone] = []
        modules: dict[str, tuple[Any, Tables]] = {}
        for path, module in model.named_modules():
            if rotary_call(module):
                tables = tables_of(module)
                if isinstance(tables, str):
                    left.append(LeftAlone(path, tables))
                else:
                    modules[path] = (module, tables)
        made = {tables.layout for _, tables in modules.values()}
        sites: list[_Site] = []
        taken: list[TakenOver] = []
        for (namespace, name), layers in _functions(model):
            full = f"{namespace.get('__name__', '?')}.{name}"
            site = _site(namespace, name)
            if isinstance(site, str):
                left.append(LeftAlone(full, site))
                continue
            used = sorted(
                {str(site.found.turns[layout]) for layout in made & set(site.found.turns)}
            )
            if not used:
                why = "no rotary module of this model makes the tables it takes"
                left.append(LeftAlone(full, why))
                continue
            sites.append(site)
            taken.append(TakenOver(full, " or ".join(used), layers))
        usable = {layout for site in sites for layout in site.found.turns}
        record = _Accelerated(next(_NEXT_USER), sites)
        paths = []
        for path, (module, tables) in modules.items():
            if tables.layout in usable:
                record.hooks.append(module.register_forward_hook(_Hook(tables, in_place)))
                paths.append(path)
            else:
                why = f"no function that was recognised takes its {tables.layout} tables"
                left.append(LeftAlone(path, why))
        for site in sites:
            site.enter(record.user)
        _MODELS[model] = (record, weakref.finalize(model, _leave, record.user, sites))
        return Report(tuple(taken), tuple(paths), tuple(left), in_place)


def restore(model: Any) -> None:
    """Undo `accelerate`: the model's own rotation is back, the very objects that were there.

    A model that is not accelerated stays as it is, so it may stand in a ``finally``.
    """
    with _LOCK:
        found = _MODELS.pop(model, None) if isinstance(model, torch.nn.Module) else None
        if found is None:
            return
        record, finalizer = found
        finalizer.detach()
        for hook in record.hooks:
            hook.remove()
        _leave(record.user, record.sites)


def _leave(user: int, sites: list[_Site]) -> None:
    with _LOCK:
        for site in sites:
            site.leave(user)
            if not site.users:
                _SITES.pop((id(site.namespace), site.name), None)


def _site(namespace: dict[str, Any], name: str) -> _Site | str:
    """Return the function's site, or why it is left alone."""
    site = _SITES.get((id(namespace), name))
    if site is not None and namespace[name] is site.dispatch:
        return site
    found = recognise(namespace[name])
    if isinstance(found, str):
        return found
    site = _SITES[id(namespace), name] = _Site(namespace, name, found)
    return site


def _functions(model: Any) -> list[tuple[tuple[dict[str, Any], str], int]]:
    """Return the functions with tables among their parameters that the model's code calls.

    Each as the namespace it is looked up in and its name there, with the number of modules
    that refer to it.
    """
    classes = Counter(type(module) for module in model.modules())
    namespaces: dict[tuple[int, str], dict[str, Any]] = {}
    layers: Counter[tuple[int, str]] = Counter()
    for cls, count in classes.items():
        keys = set()
        for function in _methods(cls):
            for name in _names(function.__code__):
                if takes_tables(function.__globals__.get(name)):
                    keys.add((id(function.__globals__), name))
                    namespaces[id(function.__globals__), name] = function.__globals__
        for key in keys:
            layers[key] += count
    return [((namespaces[key], key[1]), count) for key, count in layers.items()]


def _methods(cls: type) -> Iterator[FunctionType]:
    """Yield the functions that a class runs, its bases' where it has none, unwrapped."""
    seen = set()
    for base in cls.__mro__:
        if base.__module__.split(".")[0] == "torch":
            continue
        for name, value in vars(base).items():
            function: Callable[..., Any] | None = getattr(value, "__func__", value)
            if name in seen or not isinstance(function, FunctionType):
                continue
            seen.add(name)
            inner = inspect.unwrap(function)
            if isinstance(inner, FunctionType):
                yield inner


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function's code refers to, those of functions within it too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
