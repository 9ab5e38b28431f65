"""Secrets that show by their own form: keys, passwords in addresses, tokens of known makers.

The texts come from anywhere, so all of this takes time in proportion to their length: no pattern
begins anew within what another attempt has already passed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pyrklog.redaction.names import HIDDEN

_KEY_LABEL = r"[A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,20}"
_KEY_BEGIN = re.compile(rf"-----BEGIN {_KEY_LABEL}-----")
_KEY_END = re.compile(rf"-----END {_KEY_LABEL}-----")
_KEY_TEXT = re.compile(r"[A-Za-z0-9+/=\s\\:,-]*")
_KEY_SIGNS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/= \t\r\n\\")

_WORD = re.compile(r"[^\s\"'`<>()\[\]{}|\\]+")
_TOKENS = re.compile(
    r"""
    (?<![A-Za-z0-9_-])(?:
      eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?     # JSON web token
    | (?:AKIA|ASIA)[A-Z0-9]{16}                                        # AWS
    | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,}        # GitHub
    | glpat-[A-Za-z0-9_-]{16,}                                         # GitLab
    | xox[abposr]-[A-Za-z0-9-]{10,}                                    # Slack
    | AIza[A-Za-z0-9_-]{30,} | ya29\.[A-Za-z0-9_-]{20,}                # Google
    | (?:sk|rk)[-_](?:live|test|proj|ant)?[-_]?[A-Za-z0-9_-]{20,}      # Stripe, OpenAI, others
    | hvs\.[A-Za-z0-9_-]{20,}                                          # Vault
    | dapi[a-f0-9]{32}                                                 # Databricks
    )
    """,
    re.VERBOSE,
)
_SCHEMES = re.compile(
    r"\b(?:bearer|basic|negotiate|apikey|digest)[ \t]+(?P<secret>[A-Za-z0-9._~+/-]{6,}=*)", re.I
)
_ADDAUTH = re.compile(r"\baddauth[ \t]+\w+[ \t]+(?P<secret>\S+)", re.I)
_ZOOKEEPER_ACL = re.compile(r"\bdigest:[^\s:'\"]{1,200}:(?P<secret>[A-Za-z0-9+/=]{8,})")
_JAAS_USER = re.compile(r"\buser_[\w.@-]+[ \t]*=[ \t]*\\*[\"'](?P<secret>(?:[^\"'\\\n]|\\.)+)")
_SAID = re.compile(
    r"\b(?:password|passwd|passphrase|secret|token|credentials?)[ \t]+(?:is[ \t]+|was[ \t]+)?"
    r"\\*[\"'`](?P<secret>[^\"'`\n]+)",
    re.I,
)
_BEHIND = re.compile(
    r"\b(?:password|passwd|passphrase|secret|token|requirepass|masterauth)[ \t]+"
    r"(?:is[ \t]+|was[ \t]+)?(?P<secret>[^\s\"'`=:,;]+)",
    re.I,
)
_UNSURE = (_SCHEMES, _BEHIND)
"""These match in sentences, too."""
_KEY_OF = re.compile(
    r"\b(?:api|access|secret|private|account|shared|encryption)[ \t]+key[ \t]*[:=][ \t]*"
    r"[\"']?(?P<secret>[^\s\"']+)",
    re.I,
)
_PATTERNS = (_TOKENS, _SCHEMES, _ADDAUTH, _ZOOKEEPER_ACL, _JAAS_USER, _SAID, _BEHIND, _KEY_OF)

Learn = Callable[[str], None]


def looks_random(text: str) -> bool:
    """Not a word of a sentence: it has digits, signs, or capitals within."""
    return len(text) >= 20 or not text.isalpha() or text[1:] != text[1:].lower()


def hide_keys(text: str) -> str:
    """Private keys in PEM, also where ``\\n`` stands for ends of lines, and cut ones: whatever of
    the text before or behind the other end could belong to it goes."""
    if "PRIVATE KEY" not in text:
        return text
    kept: list[str] = []
    at = 0
    while (begin := _KEY_BEGIN.search(text, at)) is not None:
        kept.append(_without_tails(text[at : begin.start()]))
        end = _KEY_END.search(text, begin.end())
        if end is None:
            rest = _KEY_TEXT.match(text, begin.end())
            at = rest.end() if rest is not None else begin.end()
        else:
            at = end.end()
        kept.append(HIDDEN)
    kept.append(_without_tails(text[at:]))
    return "".join(kept)


def _without_tails(text: str) -> str:
    """``text`` has no beginning of a key."""
    kept: list[str] = []
    at = 0
    for end in _KEY_END.finditer(text):
        start = end.start()
        while start > at and text[start - 1] in _KEY_SIGNS:
            start -= 1
        kept += (text[at:start], HIDDEN)
        at = end.end()
    kept.append(text[at:])
    return "".join(kept)


def hide_patterns(text: str, learn: Learn) -> str:
    """``learn`` gets what is hidden."""
    if "://" in text and "@" in text:
        text = _WORD.sub(lambda found: _without_user(found[0], learn), text)
    for pattern in _PATTERNS:
        text = pattern.sub(lambda found: _hidden_part(found, learn), text)
    return text


def _without_user(word: str, learn: Learn) -> str:
    """``scheme://user:(hidden)@host``, up to the last ``@``: passwords have other ones, and
    slashes. A user without a password may be a token."""
    start, end = word.find("://") + 3, word.rfind("@")
    if start < 3 or end <= start:
        return word
    user, colon, password = word[start:end].partition(":")
    learn(password if colon else user)
    shown = f"{user}:{HIDDEN}" if colon and user else HIDDEN
    return f"{word[:start]}{shown}{word[end:]}"


def _hidden_part(found: re.Match[str], learn: Learn) -> str:
    group = "secret" if "secret" in found.re.groupindex else 0
    secret = found[group]
    if found.re in _UNSURE and not looks_random(secret):
        return found[0]
    learn(secret)
    start, end = found.start(group) - found.start(), found.end(group) - found.start()
    return f"{found[0][:start]}{HIDDEN}{found[0][end:]}"
