"""``ropewalk inspect``."""

from __future__ import annotations

import json
import shlex

import click

from ..errors import InputError
from .arguments import json_switch


@click.command("inspect", context_settings={"max_content_width": 100})
@click.argument("words", metavar="MODEL|-- TEXT…", nargs=-1, required=True)
@click.option("--planes", is_flag=True, help="Also print every plane of every rope.")
@json_switch
@click.option(
    "--assume-family",
    metavar="TYPE",
    help="Read a config.json of an unknown model_type as this known one.",
)
@click.option(
    "--engine-args",
    metavar="TEXT",
    help="Flags of vLLM, SGLang or llama.cpp: show the model as the engine would run it.",
)
@click.option(
    "--overrides", metavar="JSON", help="Keys that replace those of the config, as --hf-overrides."
)
def command(
    words: tuple[str, ...],
    planes: bool,
    as_json: bool,
    assume_family: str | None,
    engine_args: str | None,
    overrides: str | None,
) -> None:
    """Show what the positions of MODEL are, and where each value came from.

    MODEL is a model folder, a GGUF file, or the settings of a model: config.json of transformers
    or mlx-lm, params.json of Meta or Mistral, Megatron, NeMo or GPT-NeoX arguments, a Modelfile
    and more. After -- comes a text: a command line of an engine or of Megatron, or listed GGUF
    metadata. Of weight files only the header is read.

    \b
    Examples:
      ropewalk inspect path/to/model
      ropewalk inspect model.gguf --planes
      ropewalk inspect config.json --json
      ropewalk inspect config.json --assume-family llama
      ropewalk inspect params.json
      ropewalk inspect model.gguf --engine-args "--rope-scaling yarn --rope-scale 4"
      ropewalk inspect config.json --overrides '{"rope_theta": 5e6}'
      ropewalk inspect -- llama-server -c 16384 --rope-scale 4
    """  # noqa: D301 (click needs the backspace character itself)
    from ..models.fragment import Fragment
    from ..models.load import is_there
    from ..models.read import read_any, read_text
    from ..show.fragment_view import fragment_view
    from ..show.positions_table import planes_view, positions_view
    from .output import print_view

    if len(words) == 1 and (is_there(words[0]) or not _is_text(words[0])):
        plan = read_any(
            words[0], assume_family=assume_family, engine_args=engine_args, overrides=overrides
        )
    elif engine_args is not None or overrides is not None:
        raise InputError(
            "inspect",
            found="a text with --engine-args or --overrides",
            expected="one model",
            fix="give the model's own file",
        )
    else:
        plan = read_text(
            words[0] if len(words) == 1 else shlex.join(words), assume_family=assume_family
        )
    if as_json:
        click.echo(json.dumps({"schema_version": 1, **plan.to_dict()}, indent=1))
        return
    if isinstance(plan, Fragment):
        print_view(fragment_view(plan))
        return
    print_view(positions_view(plan))
    if planes:
        print_view(planes_view(plan))


def _is_text(word: str) -> bool:
    """Tell a text, which has flags, blanks or assignments, from the name of a file."""
    return word.startswith("-") or any(sign in word for sign in " =\n")
