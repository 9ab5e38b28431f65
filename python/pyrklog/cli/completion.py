"""``pyrklog completion bash|zsh|fish``, and what its scripts ask: ``pyrklog __complete SHELL ...``.

An answer is lines of a proposal, a tab and its help; bash gets no help. The first line is
``names``, or ``files`` where the shell proposes files by itself. An error has no answer.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from pyrklog.base.internal_topics import is_internal
from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError, guarded
from pyrklog.cli.options import argument

if TYPE_CHECKING:
    from pyrklog.cli.completing import Question

ASKED = "__complete"
SHOWN_MAX = 1000
HELP_CHARACTERS_MAX = 60

BASH = r"""# In ~/.bashrc  eval "$(pyrklog completion bash)"
_pyrklog() {
    local line head
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ -z $head ]]; then
            head=$line
            [[ $head == files ]] && compopt -o default
            continue
        fi
        COMPREPLY+=("$(printf '%q' "$line")")
    done < <("$1" __complete bash "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0
}
complete -F _pyrklog pyrklog
"""
ZSH = r"""#compdef pyrklog
# In ~/.zshrc, behind compinit  eval "$(pyrklog completion zsh)"
_pyrklog() {
    local line head value about
    local -a values shown
    while IFS= read -r line; do
        if [[ -z $head ]]; then
            head=$line
            continue
        fi
        value=${line%%$'\t'*}
        about=${line#*$'\t'}
        values+=("$value")
        shown+=("$value${about:+  -- $about}")
    done < <("${words[1]}" __complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)
    if [[ $head == files ]]; then
        _files
    elif (( ${#values} )); then
        compadd -l -d shown -a values
    fi
}
compdef _pyrklog pyrklog
"""
FISH = r"""# In ~/.config/fish/config.fish  pyrklog completion fish | source
function __pyrklog_complete
    set -l words (commandline -opc)
    set -l last (commandline -ct)
    set -l found ($words[1] __complete fish $words[2..-1] "$last" 2>/dev/null)
    if test "$found[1]" = files
        __fish_complete_path "$last"
    else if test (count $found) -gt 1
        printf '%s\n' $found[2..-1]
    end
end
complete -c pyrklog -f -a '(__pyrklog_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@guarded
def completion(shell: str = argument("SHELL", "bash, zsh or fish.")) -> None:
    """Print what completes commands, options, topics and groups in a shell; `eval` it there."""
    script = SCRIPTS.get(shell)
    if script is None:
        raise CliError(
            Problem.ARGUMENT_VALUE, f"completion takes {', '.join(SCRIPTS)}, not {shell!r}"
        )
    sys.stdout.write(script)


def answer(arguments: Sequence[str]) -> None:
    """Answers a script, and ends the process: a question to a cluster may still be on its way."""
    try:
        sys.stdout.write("".join(f"{line}\n" for line in lines(arguments, os.environ)))
        sys.stdout.flush()
    except BaseException:  # a shell shows nothing of it
        os._exit(1)
    os._exit(0)


def lines(arguments: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The answer to ``SHELL`` and, of bash, the line and its last word as bash cuts it; of others,
    the words, the last of which is to be completed."""
    shell, *words = arguments
    cut = ""
    if shell == "bash":
        line, bash_word = words
        words = split(line)[1:] or [""]
        # Bash replaces only what is behind its last separator, which may be a colon or "=".
        bash_word = "" if bash_word in (":", "=") else bash_word
        cut = words[-1].removesuffix(split(bash_word)[-1]) if bash_word else words[-1]
    from pyrklog.cli.app import app
    from pyrklog.cli.completing import Kind, question

    asked = question(typer.main.get_command(app), words[:-1], words[-1])
    if asked.kind is Kind.FILES:
        return ["files"]
    found = proposals(asked, environ)
    if shell != "bash":
        return ["names", *(f"{name}\t{about}" for name, about in found.items())]
    return ["names", *(name.removeprefix(cut) for name in found if name.startswith(cut))]


def split(line: str) -> list[str]:
    """Words of a shell's line, of which the last may be empty or lack its closing quotation."""
    import shlex

    for closing in ("", "\\", '"', "'"):
        try:
            found = shlex.split(f"{line}{closing}")
        except ValueError:
            continue
        is_between = not closing and (not line or line[-1].isspace()) and not line.endswith("\\ ")
        return [*found, ""] if is_between else found
    return [""]


def proposals(asked: "Question", environ: Mapping[str, str]) -> dict[str, str]:
    """Whole words with their help."""
    found = {}
    for name, about in _names(asked, environ).items():
        is_visible = not is_internal(name) or asked.start.startswith("_")
        if name.startswith(asked.start) and name.isprintable() and is_visible:
            found[asked.before + name] = about[:HELP_CHARACTERS_MAX]
        if len(found) == SHOWN_MAX:
            break
    return found


def _names(asked: "Question", environ: Mapping[str, str]) -> Mapping[str, str]:
    from pyrklog.cli.completing import Kind

    match asked.kind:
        case Kind.WORDS:
            return asked.words
        case Kind.PROFILES:
            from pyrklog.cli.profiles import WITHOUT, load

            return dict.fromkeys((*load(environ).names(), WITHOUT), "")
        case Kind.TOPIC_OPTIONS:
            from pyrklog.config.topic import TOPIC_OPTIONS_BY_NAME

            return dict.fromkeys(sorted(TOPIC_OPTIONS_BY_NAME), "")
        case Kind.BROKER_OPTIONS:
            from pyrklog.config.broker import OPTIONS

            return dict.fromkeys(sorted(OPTIONS), "")
        case Kind.TOPICS | Kind.GROUPS:
            from pyrklog.cli.completing_names import cached_names

            names = cached_names(asked.kind, _settings(asked.given, environ), environ)
            return dict.fromkeys(names, "")
        case _:
            return {}


def _settings(given: Mapping[str, Sequence[str]], environ: Mapping[str, str]) -> Any:
    """Of the line so far. Raises :class:`CliError`."""
    from pyrklog.cli.options import Given, parse_pairs, settings
    from pyrklog.cli.profiles import load

    def last(*names: str) -> str | None:
        found = [value for name in names for value in given.get(name, ())]
        return found[-1] if found else None

    profiles = load(environ)
    # Behind the command counts more than before it.
    named = last("profile_name", "profile")
    chosen = profiles.selected(named, environ)
    wanted = Given(
        bootstrap=last("bootstrap"),
        profile=named,
        properties=parse_pairs(list(given.get("properties", ())), "-X"),
    )
    return settings(wanted, None if chosen is None else profiles.get(chosen))
