"""``specdec export``: what other engines read, as ordinary files."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specdec.cli import memory, models
from specdec.errors import RequestError, SpecdecError

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(
    help="Write what other engines read, as ordinary files.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def options() -> None:
    """Write what other engines read, as ordinary files."""


@app.command("demo")
def demo(
    folder: Annotated[Path, typer.Argument(help="The folder to make.")],
    dtype: Annotated[str, typer.Option(help=models.DTYPE_HELP)] = "float32",
    force: Annotated[bool, typer.Option("--force", help="Replace a model that is there.")] = False,
) -> None:
    """Write the demo model, adapter merged, as a model folder.

    It holds weights as safetensors, configuration, tokenizer and a chat template with tools.
    """
    # The folder behind a link: a link itself cannot be replaced by a folder.
    place = folder.resolve()
    _check(place, folder, force)
    models.quiet()
    import torch

    from specdec.hf import loading

    target = loading.load_demo(dtype, torch.device("cpu"))
    tokenizer = target.tokenizer
    assert tokenizer is not None

    def write(into: Path) -> None:
        target.model.save_pretrained(into)
        tokenizer.save_pretrained(into)
        for file in into.iterdir():  # safetensors writes for its user alone
            shutil.copymode(into / "config.json", file)

    try:
        install(place, write)
    except OSError as error:
        raise SpecdecError(f"{folder} cannot be written: {error.strerror or error}") from None
    size = sum(file.stat().st_size for file in place.iterdir()) / 1e6
    kind = str(target.model.dtype).removeprefix("torch.")
    typer.echo(f"the demo model in {kind} written to {folder} ({size:.0f} MB)")


# The same as `specdec memory export`, where whoever looks for another engine's food looks first.
app.command("memory")(memory.export)


def install(place: Path, write: Callable[[Path], None]) -> None:
    """Put a folder in its place, whole or not at all.

    Args:
        place: The folder; what is there makes way when its successor is complete.
        write: Fills an empty folder.
    """
    # Not a temporary folder of tempfile's: those are for their owner alone.
    new, old = (place.with_name(f".{place.name}.{uuid.uuid4().hex}") for _ in range(2))
    new.mkdir()
    try:
        write(new)
        if place.exists():
            place.rename(old)
        try:
            new.rename(place)
        except OSError:
            if old.exists():
                old.rename(place)
            raise
    finally:
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)


def _check(place: Path, given: Path, force: bool) -> None:
    """Refuse a place before the model is loaded.

    Raises:
        RequestError: If it cannot be written, or holds what should not be lost.
    """
    if not place.parent.is_dir() or not os.access(place.parent, os.W_OK):
        raise RequestError(f"{given} cannot be made: no writable folder {place.parent}")
    if not place.exists():
        return
    if not place.is_dir():
        raise RequestError(f"{given} is a file; give the name of a folder to make")
    inside = list(place.iterdir())
    if not inside:
        return
    if not force:
        raise RequestError(
            f"{given} is not empty; give the name of a new folder, or --force to replace the model "
            "in it"
        )
    # A slip of the hand must not cost a home folder.
    if not (place / "config.json").is_file() or any(path.is_dir() for path in inside):
        raise RequestError(
            f"{given} holds something else than a model (a model folder has config.json and no "
            "folders inside); --force replaces models only"
        )
