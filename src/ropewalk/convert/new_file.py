"""Making a new file in one step: whole or not at all, and never over another one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ..errors import InputError


@contextmanager
def new_file(target: Path) -> Iterator[IO[bytes]]:
    """Open a file to write that appears under its name when the block ends without an error.

    Args:
        target: the new file, in a folder that exists.

    Raises:
        InputError: the file exists, before or when it is finished; or cannot be written.
    """
    if target.exists():
        raise _exists(target)
    scratch = target.with_name(f".partial-{target.name}-{os.getpid()}")
    try:
        with scratch.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _put_in_place(scratch, target)
    except OSError as error:
        raise InputError(
            f"--write: {target}",
            found=error.strerror or str(error),
            expected="a place where a file can be written",
            fix="choose another place, or create the folder first",
        ) from None
    finally:
        scratch.unlink(missing_ok=True)


def _put_in_place(scratch: Path, target: Path) -> None:
    try:
        # A rename would replace a file that has come to exist meanwhile; a link does not.
        os.link(scratch, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError:  # a file system without links
        if target.exists():
            raise _exists(target) from None
        scratch.rename(target)


def _exists(target: Any) -> InputError:
    return InputError(
        f"--write: {target}",
        found="something that exists",
        expected="a new file",
        fix="choose another name; nothing is overwritten",
    )
