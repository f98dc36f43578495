"""Parses a request: its content words, the meaning of its literal values, and the kind of action.
Pure, and the same for every index.
"""

from __future__ import annotations

from collections.abc import Sequence

import re2
from msgspec import Struct

from mainspring.retrieval.request_phrases import Meaning, meanings
from mainspring.retrieval.stems import STOP_WORDS, name_words, stem, words

_QUOTED_WEIGHT = 0.3  # text in quotes is more often data than a name
_ABBREVIATIONS = {
    "ci": "status checks",
    "config": "configuration",
    "db": "database",
    "dir": "directory",
    "docs": "documentation",
    "env": "environment",
    "js": "javascript",
    "k8s": "kubernetes",
    "mr": "merge request",
    "pic": "picture",
    "pr": "pull request",
    "prs": "pull request",
    "repo": "repository",
}
# The meaning of literal values, in the order in which they are searched.
_LITERALS: tuple[tuple[str, str], ...] = (
    (r"[\w.+-]+@[\w-]+\.\w+", "email"),
    (r"(?i)(https?://|www\.)\S+", "url"),
    (r"(?i)\b[\w-]+\.(png|jpe?g|gif|svg|webp|bmp)\b", "file image"),
    (r"(?i)\b[\w-]+\.(mp3|wav|ogg|flac)\b", "file audio"),
    (
        r"(?i)\b[\w-]+\.(mp4|mov|avi|mkv|txt|md|csv|json|ya?ml|toml|pdf|docx?|xlsx?|py|js|ts|log"
        r"|html?|xml|ini|zip)\b",
        "file",
    ),
    (r"-?\b\d+\.\d{2,}°?,? +-?\d+\.\d{2,}", "coordinates"),
    (r"(?i)\b\d{1,2}(:\d\d)? ?(am|pm)\b|\b\d{1,2}:\d\d\b", "time"),
    (r"\B#[a-z][\w-]+", "channel"),
    (r"\B@[a-z][\w.-]+", "user"),
    (r"\b[A-Z][A-Z0-9]+-\d+\b", "issue"),
)
_PATTERNS = tuple((re2.compile(pattern), meaning) for pattern, meaning in _LITERALS)
_QUOTED = re2.compile(r'"[^"]*"|“[^”]*”')
_POLITE = re2.compile(
    r"(?i)^\W*(hey,? |hi,? |please |(can|could|would|will) (you|we) |help me( to)? "
    r"|let'?s |i('d| would)? (want|need|like)( you)? to |we (want|need) to |go ahead and )+"
)
_HYPHENATED = re2.compile(r"\b[a-z]+-[a-z]+\b")
# fmt: off
_QUESTION_WORDS = frozenset((
    "what", "which", "who", "whom", "whose", "when", "where", "why", "how", "is", "are", "was",
    "were", "did", "does", "do", "has", "have", "can", "could", "any",
))
# fmt: on
_ACTIONS = {
    "read": "get list search read find query show describe fetch export check view count retrieve"
    " look display see tell compare know lookup inspect explain watch",
    "create": "create add make new insert post append write send start put upload install file"
    " open generate register",
    "update": "update edit change modify set rename move patch replace assign transition fix"
    " correct merge scale restart",
    "delete": "delete remove drop erase discard uninstall clear reset forget purge stop close"
    " archive cancel",
}
_ACTION_OF = {stem(verb): action for action, verbs in _ACTIONS.items() for verb in verbs.split()}


class Term(Struct, frozen=True):
    stem: str
    weight: float = 1.0


class ActionRequest(Struct, frozen=True):
    terms: tuple[Term, ...]
    action: str
    """`read`, `create`, `update`, `delete`, or empty if there is no such verb."""
    meanings: tuple[Meaning, ...] = ()
    """The meanings of its phrases."""


def parse_request(text: str) -> ActionRequest:
    """The words of a request without stop words, and the meanings of its values and phrases."""
    values: list[str] = []
    for pattern, meaning in _PATTERNS:
        if pattern.search(text):
            values += meaning.split()
            text = pattern.sub(" ", text)
    quoted = [word for match in _QUOTED.finditer(text) for word in name_words(match.group())]
    plain = _POLITE.sub("", _QUOTED.sub(" ", text))
    plain_words = name_words(plain)
    spelled = [
        word for part in plain_words for word in (part, *_ABBREVIATIONS.get(part, "").split())
    ]
    hyphenated = _HYPHENATED.finditer(plain.lower())
    joined = [match.group().replace("-", "") for match in hyphenated]
    main = [word for word in (*spelled, *joined) if word not in STOP_WORDS] + values
    terms: dict[str, float] = {stem(word): 1.0 for word in main or words(text)}
    for word in quoted:
        if word not in STOP_WORDS:
            terms.setdefault(stem(word), _QUOTED_WEIGHT)
    return ActionRequest(
        tuple(Term(word, weight) for word, weight in terms.items()),
        "read" if plain_words and plain_words[0] in _QUESTION_WORDS else action_of(plain_words),
        meanings(plain_words),
    )


def action_of(words: Sequence[str]) -> str:
    """The action of the first verb that has one."""
    return next((kind for word in words if (kind := _ACTION_OF.get(stem(word), ""))), "")
