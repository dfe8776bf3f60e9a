"""A group of commands that are imported when they are called.

Help, version and the completion of a command's name wait for none of them.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from simulations.common.failures import interrupted

INTERRUPTED: Final = 130
"""Exit status of a command that Ctrl-C ended: 128 and the number of SIGINT."""


@dataclass(frozen=True, slots=True)
class Verb:
    """Where a command is.

    Attributes:
        module: that has it.
        name: of its function or application there.
        help: its first sentence, as the list of all commands shows it.
    """

    module: str
    name: str
    help: str

    def load(self, called: str) -> Any:
        """Import the command, and give it the name that it is called by."""
        command = getattr(import_module(self.module), self.name)
        app = typer.Typer(pretty_exceptions_show_locals=False)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=called)
        else:
            app.command(called)(command)
        return get_group(app).commands[called]


class Verbs(MutableMapping[str, Any]):
    """Commands by name, each imported when it is asked for."""

    def __init__(self, verbs: dict[str, Verb]) -> None:
        self.verbs = verbs
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self.verbs[name].load(name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.verbs)

    def __len__(self) -> int:
        return len(self.verbs)


class LazyGroup(TyperGroup):
    """The commands of a subclass's `verbs`."""

    verbs: ClassVar[dict[str, Verb]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": {}})
        self.commands = Verbs(self.verbs)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; if it is interrupted, say how to go on."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Typer would end here without a word.
            if os.environ.get("RANK", "0") == "0":
                typer.echo(interrupted(sys.argv), err=True)
            raise typer.Exit(INTERRUPTED) from None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the commands' outline."""
        self._outline().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete the name of a command, or an option of the group, from the outline."""
        outline, context = self._outline(), copy.copy(ctx)
        context.command = outline
        return outline.shell_complete(context, incomplete)

    def _outline(self) -> TyperGroup:
        """A group of the same commands that have nothing but their help."""
        return TyperGroup(
            name=self.name,
            help=self.help,
            params=self.params,
            rich_markup_mode=self.rich_markup_mode,
            commands={
                name: TyperCommand(name, help=verb.help) for name, verb in self.verbs.items()
            },
        )
