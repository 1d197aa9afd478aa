"""A connection to a Ray cluster: what the lab and ``measure`` share when they spread work."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .errors import InputError, MissingExtraError

_WHERE = "--on"
_ADDRESS = re.compile(r"(?P<client>ray://)?(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<port>\d{1,5})")
_SECONDS_TO_REACH, _SECONDS_TO_JOIN = 5.0, 45.0

# Ray's own attempt to join takes minutes to give up and cannot be interrupted.
_TRIAL = "import sys, ray; ray.init(address=sys.argv[1], logging_level='ERROR')"


def check_address(address: str) -> None:
    """Raise unless ``address`` names a place where something listens.

    Args:
        address: ``ray://host:port`` of a Ray client server, ``host:port`` of the cluster that
            this machine is a part of, or ``auto`` for the one that runs here.

    Raises:
        InputError: no such form, or nothing answers.
        MissingExtraError: Ray is not installed.
    """
    _import_ray(address)
    where = _told(address)
    if where == "auto":
        return
    match = _ADDRESS.fullmatch(where)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise InputError(
            _WHERE,
            found=repr(where),
            expected="auto, ray://HOST:PORT or HOST:PORT",
            fix="correct the address, e.g. ray://head:10001",
        )
    try:
        place = match["host"].strip("[]"), int(match["port"])
        socket.create_connection(place, timeout=_SECONDS_TO_REACH).close()
    except OSError as error:
        raise _no_cluster(where, str(error)) from None


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Join the cluster at ``address`` and yield the ``ray`` module; leave it at the end.

    Args:
        address: see `check_address`.

    Raises:
        InputError: there is no cluster, or this process is connected to one already.
        MissingExtraError: Ray is not installed.
    """
    check_address(address)
    ray = _import_ray(address)
    where = _told(address)
    if ray.is_initialized():
        raise InputError(
            _WHERE,
            found="a process that is connected to a Ray cluster already",
            expected="one that is not",
            fix="call ray.shutdown() first",
        )
    if not where.startswith("ray://"):
        _try_to_join(where)
    try:
        with warnings.catch_warnings():
            # What they say is in the error that follows.
            warnings.simplefilter("ignore")
            ray.init(address=where, logging_level="ERROR", log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as error:
        raise _no_cluster(where, str(error)) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def reason_of(error: Exception) -> str:
    """Return one line that says why Ray lost a piece of work."""
    import ray

    lines = str(error).strip().splitlines() or [""]
    # The error of a task ends with the task's own error, the others begin with the cause.
    line = lines[-1] if isinstance(error, ray.exceptions.RayTaskError) else lines[0]
    return f"{type(error).__name__}: {line}"


def _import_ray(address: str) -> Any:
    try:
        import ray

        if address.startswith("ray://"):
            import grpc  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            error.name or "ray", extra="ray", needed_for=f"--on {address}"
        ) from None
    return ray


def _told(address: str) -> str:
    """Return what ``auto`` stands for, where Ray's own variable says it."""
    return os.environ.get("RAY_ADDRESS") or "auto" if address == "auto" else address


def _try_to_join(where: str) -> None:
    command = [sys.executable, "-c", _TRIAL, where]
    try:
        trial = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS_TO_JOIN, check=False
        )
    except subprocess.TimeoutExpired:
        raise _no_cluster(where, f"no answer within {_SECONDS_TO_JOIN:.0f} seconds") from None
    if trial.returncode != 0:
        raise _no_cluster(where, (trial.stderr.strip().splitlines() or ["no reason given"])[-1])


def _no_cluster(where: str, reason: str) -> InputError:
    lines = reason.strip().splitlines() or ["no reason given"]
    return InputError(
        _WHERE,
        found=f"no Ray cluster at {where} ({lines[0]})",
        expected="a running one that this machine reaches",
        fix="start it with `ray start --head`, or correct the address",
    )
