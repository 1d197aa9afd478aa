"""The ``ropewalk`` command: a table of commands, each imported when it is called."""

from __future__ import annotations

import importlib
import io
import sys
from typing import Any

import click

from ..errors import RopewalkError

COMMANDS: dict[str, tuple[str, str]] = {
    "measure": ("measure", "Measure extension methods on a model, by context length."),
    "extend": ("extend", "Stretch a model to a longer context: verdict, config, files."),
    "inspect": ("inspect", "Show what a model's positions are, and where each value came from."),
    "check": ("check", "Find what is wrong with a model's positions, what is right, and the fix."),
    "explain": ("explain", "Explain a rule of check, with a bad and a good example."),
    "convert": (
        "convert",
        "Convert a model: its positions to another format, its weights to another pairing.",
    ),
    "pairing": ("pairing", "Tell from the weights alone which lanes make a plane."),
    "compare": (
        "compare",
        "Show what each engine computes from a config, or how two models differ in meaning.",
    ),
    "lab": ("lab", "Train small models side by side, to compare encodings and stretches."),
    "verify": ("verify", "Check the identities of rotary embeddings on numbers."),
}
"""Command name to (module in this package, one-line help). Each module has ``command``."""

UNREADABLE = 2


class _Group(click.Group):
    """Lists the commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".{COMMANDS[cmd_name][0]}", __package__)
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="ropewalk", message="ropewalk %(version)s")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Position encodings of transformers: computed, stretched, read and measured.

    \b
    Examples:
      ropewalk measure                          the built-in model, all methods
      ropewalk extend model.gguf --to 32768     a verdict and the config for each engine
      ropewalk inspect path/to/model            what its positions are
      ropewalk verify                           the identities, on numbers
    """  # noqa: D301 (click needs the backspace character itself)
    ctx.obj = {"debug": debug}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit 0 clean, 1 findings, 2 usage or unreadable input."""
    debug = "--debug" in (sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show θ or ✓ gets a question mark, not a traceback.
        sys.stdout.reconfigure(errors="replace")
    try:
        code: Any = cli.main(args=arguments, standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted; finished work is kept", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except RopewalkError as error:
        if debug:
            raise
        click.echo(f"ropewalk: {error}", err=True)
        sys.exit(UNREADABLE)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
