"""`dspark completion`: what a shell needs to complete commands, groups, options and settings.

The shell's script asks ``dspark completion --query LINE`` at every TAB; settings are Hydra's own
completion engine's answer, so a plugin's or a user's option is offered like any other.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import os
import shlex
from typing import TYPE_CHECKING

from dspark.cli.plain import PlainParser, plain_command
from dspark.cli.reproduce import experiment_names

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

# bash ends a word at "=", so what lies before it must not be repeated; a finished word gets a space.
_BASH = r"""_dspark_complete() {
    local line="${COMP_LINE:0:COMP_POINT}" cut="" IFS=$'\n' i
    local word="${line##*[[:space:]]}"
    if [[ "$COMP_WORDBREAKS" == *=* && "$word" == *=* ]]; then cut="${word%=*}="; fi
    COMPREPLY=($("${COMP_WORDS[0]}" completion --query "$line" 2>/dev/null))
    for i in "${!COMPREPLY[@]}"; do
        COMPREPLY[i]="${COMPREPLY[i]#"$cut"}"
        case "${COMPREPLY[i]}" in *[=./]) ;; *) COMPREPLY[i]+=" " ;; esac
    done
}
complete -o nospace -o default -F _dspark_complete dspark
"""
_ZSH = r"""#compdef dspark
_dspark() {
    local -a found
    found=("${(@f)$("${words[1]}" completion --query "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
    compadd -S '' -- ${found:#} || _files
}
compdef _dspark dspark
"""
_FISH = r"""function __dspark_complete
    dspark completion --query (commandline -cp | string collect) 2>/dev/null
end
complete -c dspark -f -a '(__dspark_complete)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

_HYDRA_FLAGS = ("--cfg", "--config-dir", "--help", "--info", "--multirun", "--package", "--resolve")
_TAKES_VALUE = ("--config-dir", "-cd")
PLAIN_WORDS = {
    "completion": (*SCRIPTS, "--help"),
    "doctor": ("--json", "--help"),
    "report": ("--out", "--sort", "--x", "--help"),
    "reproduce": ("list", "all", "--out", "--quick", "--again", "--help"),
}
"""What the commands without settings take; `reproduce` also takes the names of experiments."""


def command(arguments: Sequence[str]) -> int:
    """The exit code of `dspark completion ARGUMENTS`."""
    parser = PlainParser(
        "completion",
        description="dspark completion: completes commands, groups, options and settings in your shell.",
        examples='  eval "$(dspark completion bash)"       in ~/.bashrc\n'
        '  eval "$(dspark completion zsh)"        in ~/.zshrc, after compinit\n'
        "  dspark completion fish | source        in ~/.config/fish/config.fish",
    )
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("shell", nargs="?", choices=sorted(SCRIPTS))
    asked.add_argument("--query", metavar="LINE", help="what may follow this line; the scripts ask it")
    return plain_command(parser, arguments, _answer)


def _answer(options: argparse.Namespace) -> int:
    if options.query is None:
        print(SCRIPTS[options.shell], end="")
    else:
        print("\n".join(suggestions(options.query)))
    return 0


def suggestions(line: str) -> list[str]:
    """The words that the last word of a command line may become, sorted.

    Args:
        line: up to the cursor, the program's name first.
    """
    from dspark.cli.main import COMMANDS

    try:
        words = shlex.split(line)
    except ValueError:  # a quote is open
        return []
    typed = "" if line[-1:].isspace() else words.pop()
    name, before = (words[1], words[2:]) if len(words) > 1 else (None, [])
    if name is None:
        known = [*COMMANDS, "--help", "--version"]
    elif name not in COMMANDS:
        return []
    elif not _takes_settings(name):
        known = [*PLAIN_WORDS[name], *(experiment_names() if name == "reproduce" else ())]
    elif typed.startswith("-"):
        known = _HYDRA_FLAGS
    else:
        known = _settings(name, before, typed)
    return sorted(word for word in known if word.startswith(typed))


def _takes_settings(name: str) -> bool:
    """True for a command with a primary config."""
    from dspark.config.paths import config_dir

    return (config_dir() / f"{name}.yaml").is_file()


def _settings(name: str, before: Sequence[str], typed: str) -> list[str]:
    """Groups, options, settings and their present values, as Hydra completes them.

    Words with spaces are left out, since Hydra cuts the line at spaces: they change no group.
    """
    flags = [
        word for flag, value in itertools.pairwise(before) if flag in _TAKES_VALUE for word in (flag, value)
    ]
    overrides = [word for word in before if "=" in word and " " not in word and not word.startswith("-")]
    told = io.StringIO()
    kept = os.environ.get("COMP_LINE")
    os.environ["COMP_LINE"] = " ".join(["dspark", *overrides, typed])
    try:
        with contextlib.redirect_stdout(told):
            importlib.import_module(f"dspark.cli.{name}").command([*flags, "-sc", "query=fish"])
    finally:
        if kept is None:
            del os.environ["COMP_LINE"]
        else:
            os.environ["COMP_LINE"] = kept
    return told.getvalue().split()
