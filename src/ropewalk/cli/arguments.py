"""Arguments and options that several commands take in the same form."""

from __future__ import annotations

from pathlib import Path

import click

optional_model = click.argument("model", required=False, type=click.Path(path_type=Path))

text_files = click.option(
    "--text",
    "texts",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Text to measure on; may be repeated.  [default: held-out files of Python's library]",
)

json_switch = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of tables."
)

on_cluster = click.option(
    "--on",
    metavar="ADDRESS",
    help="Spread the work over a Ray cluster: auto, ray://HOST:10001 or HOST:6379.",
)
