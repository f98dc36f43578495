"""What a sentence of a person states: a subject, a relation and a value; what it says is no longer
so; and what it asks to forget.

Rules for English, without a model. They recognise the forms that people use for facts, corrections,
negations, moves and renames. What they do not recognise they leave alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mainspring.retrieval.stems import content_words, stems


def _form(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_NAME = r"(?:the\s+|our\s+|my\s+)?[\w@:/.+#-]*[\w@/+#-](?:\s+\d[\w.]*)?"
"""A name of one word, with its version: `acme-core`, `node 18`, `https://example.org`."""

CORRECTION = _form(
    r"^(?:(?:no|nope|wrong|sorry|correction|oops)\b[,.!:;]*\s+|no[,.!:]\s*"
    r"|(?:that|this|it|what i said)(?:'s|\s+is|\s+was)\s+"
    r"(?:wrong|not (?:right|true|correct))[,.!:;]*\s*"
    r"|actually\b[,\s]\s*|i\s+meant\b[,:]?\s*(?:that\s+|to say\s+)?"
    r"|(?:i was|my)\s+(?:wrong|mistake)[,.!:;]*\s*"
    r"|scratch that[,.!:;]*\s*)+"
)
"""How a correction begins; what follows is the corrected statement."""
FORGET = _form(
    r"^(?:please\s+|you can\s+|now\s+)*(?:forget|do(?:n't| not) remember|no need to remember)"
    r"\s+(?:(?:about|that|what i said about|everything about)\s+)(?P<what>.+)$"
)
_POINTLESS = _form(r"^(?:it|this|that|them|him|her|everything|all)\b[.!]?$")
_ANAPHORA = _form(
    r"^(?:it|that|this|they|he|she|these|those)"
    r"(?:'s|'re|\s+(?:is|are|was|lives?|runs?|goes|should be))"
    r"\s+(?:now\s+|actually\s+|called\s+)?(?:(?:at|on|in|to)\s+)?(?P<value>\S.*)$"
)

_RENAMED = (
    _form(
        rf"^(?:(?:the|our|my)\s+(?:\w+\s+)?)?(?P<old>{_NAME})\s+"
        rf"(?:is now (?:named|called)|(?:is now|has been|was) re-?named)(?:\s+to)?\s+"
        rf"(?P<new>{_NAME})"
    ),
    _form(
        rf"\b(?:we|i)\s+(?:have\s+|'ve\s+)?renamed\s+(?P<old>{_NAME})\s+(?:to|as|into)\s+(?P<new>{_NAME})"
    ),
)
_EXCHANGED = (
    _form(
        rf"\b(?:switched|moved|migrated|changed|went)\s+(?:over\s+)?from\s+(?P<old>{_NAME})"
        rf"\s+to\s+(?P<new>{_NAME})"
    ),
    _form(
        rf"^(?P<old>{_NAME})\s+(?:was|is|has been|got)\s+(?:now\s+)?replaced\s+(?:by|with)\s+"
        rf"(?P<new>{_NAME})"
    ),
    _form(rf"\breplaced\s+(?P<old>{_NAME})\s+(?:by|with)\s+(?P<new>{_NAME})"),
    _form(rf"^(?P<new>{_NAME})\s+(?:replaces|replaced)\s+(?P<old>{_NAME})"),
    _form(
        rf"\b(?:no longer|not|n't)\s+(?:\w+\s+)?(?:(?:on|in|at|with)\s+)?(?P<old>{_NAME})"
        rf"(?:\s+any ?more)?,?\s+but\s+(?:(?:on|in|at|with)\s+)?(?P<new>{_NAME})"
    ),
    _form(
        rf"\b(?:no longer|n't|not)\s+use\s+(?P<old>{_NAME})(?:\s+any ?more)?[,;.]\s+(?:but\s+)?"
        rf"(?:we\s+)?(?:now\s+)?(?:use\s+)(?P<new>{_NAME})"
    ),
    _form(rf"\buse\s+(?P<new>{_NAME})\s+(?:instead of|rather than|not)\s+(?P<old>{_NAME})"),
)
_CHANGING = _form(
    rf"\b(?:is|are|'re)\s+(?:currently\s+|now\s+|slowly\s+)?(?:migrating|moving|switching|changing)"
    rf"\s+(?:over\s+|away\s+)?from\s+(?P<old>{_NAME})\s+to\s+(?P<new>{_NAME})"
)
"""A change that has begun: the old is still true."""
_NO_LONGER = _form(
    r"\b(?:no longer|any ?more|stopped|quit|gave up|dropped|retired|abolished|removed"
    r"|cancell?ed)\b"
)
_OLD_PARTS = _form(
    r",?\s+(?:not|instead of|rather than|no longer)\s+(?:(?:on|in|at)\s+)?[^\s,;]+(?=[\s.,;!]|$)"
    r"|\bfrom\s+\S+\s+(?=to\b)"
)
_ALSO = _form(r"\b(?:also|too|as well|another|additional(?:ly)?|second|third|other|besides)\b")

_CHANGED = (
    r"(?:has\s+|have\s+|'s\s+|'ve\s+)?(?:been\s+)?(?:moved|changed|relocated|switched)"
    r"\s+(?:to|into)"
)
_RELATIONS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("*", _form(rf"(?:\s(?:is\s+|was\s+)?|(?='))(?:now\s+)?{_CHANGED}\s+")),
    ("called", _form(r"(?:\s(?:is|are|was)|'s|'re)\s+(?:now\s+|currently\s+)?(?:called|named)\s+")),
    (
        "at",
        _form(
            r"(?:\s(?:is|are|was)|'s)\s+(?:now\s+)?(?:hosted\s+|located\s+|found\s+)?(?:at|in|under)\s+"
        ),
    ),
    ("on", _form(r"(?:\s(?:is|are|was)|'s)\s+(?:now\s+)?(?:due\s+)?(?:on|until|by|every)\s+")),
    ("at", _form(r"\s(?:now\s+)?(?:lives?|sits?|resides?)\s+(?:now\s+)?(?:at|in|under|on)\s+")),
    (
        "run",
        _form(
            r"\s(?:now\s+)?(?:runs?|listens?|deploys?|starts?)\s+(?:now\s+)?(?:at|on|in|with)\s+"
        ),
    ),
    ("go", _form(r"\s(?:now\s+)?(?:goes|go|belongs?|reports?|is sent|are sent)\s+(?:to)\s+")),
    ("work", _form(r"\s(?:now\s+)?works?\s+(?:now\s+)?(?:at|for|in|as)\s+")),
    ("be", _form(r"(?:\s(?:is|are|was|were)|'s|'re|'m|\sam)\s+(?:now\s+|currently\s+)?")),
)
_OWNS = re.compile(
    r"^(?:(?:[Tt]he|[Oo]ur) (?:team|squad|group) )?"
    r"(?P<value>[A-Z][\w'-]*(?:\s+[A-Z][\w'-]*)?)\s+(?:now\s+)?"
    r"(?P<verb>owns|leads|maintains|manages|is (?:now )?responsible for|is (?:now )?in charge of)"
    r"\s+(?P<what>.+)$"
)
_CALL_ME = _form(r"^(?:please\s+)?call\s+(?P<what>me|us)\s+(?P<value>.+)$")
_PREFERS = _form(
    r"^(?:(?:please|from now on|in future),?\s+)*"
    r"i(?:'d rather (?:have|use|get|see)?| (?:now )?prefer| (?:now )?(?:like|want))\s+"
    r"(?P<value>\S.*?)(?:\s+(?P<place>for|in|on|when|as)\s+(?P<what>.+))?$"
)
_ANSWERS = _form(
    r"^(?:(?:please|from now on|in (?:the )?future|always)[,]?\s+)*"
    r"(?P<what>(?:answer|reply|respond|write|speak|talk|explain|comment)(?:\s+[a-z]+){0,3}?)"
    r"\s+in\s+(?P<value>\w+)$"
)

_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
_MONTH = (
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december)"
)
_CALENDAR = _form(rf"{_WEEKDAY}|{_MONTH}")
_KINDS = {
    "address": _form(r"(?:https?://\S+|\b[\w-]+(?:\.[\w-]+)+\.?[a-z]{2,}\b\S*)"),
    "path": _form(r"(?:^|\s)(?:~|\.{0,2})/\S+"),
    "day": _form(
        rf"\b(?:{_WEEKDAY}|\d{{1,2}}\.?\s+{_MONTH}|{_MONTH}\s+\d{{1,2}}|\d{{4}}-\d\d(?:-\d\d)?)\b"
    ),
    "time": _form(r"\b\d{1,2}(?::\d\d\s*(?:am|pm)?|\s*(?:am|pm))\b"),
    "number": _form(r"(?<![\w.])\d[\d,.]*(?:-\d+)*(?![\w.])"),
    "name": re.compile(r"(?<=\s)[A-Z][\w-]+|\b[a-z\d]+(?:[-_][a-z\d]+)+\b"),
}
_CHANGE_WORDS = frozenset(("now", "current", "longer", "anymor", "pleas", "new"))
_ARTICLES = _form(r"^(?:the|our|my|a|an|and|but|so)\s+")
_POLITE = _form(
    r"^(?:please|and|also|so|ok(?:ay)?|well|by the way|btw|fyi|note that|remember that)[,:]?\s+"
)
_TAIL = _form(r"(?:,?\s+(?:now|please|instead|from now on|these days))+$|[\s.!]+$")


@dataclass(frozen=True, slots=True)
class Frame:
    """Two statements with one `key` cannot both be true if their values differ."""

    key: tuple[str, frozenset[str]]
    value: str

    @property
    def value_stems(self) -> tuple[str, ...]:
        return tuple(_value_stems(self.value))


@dataclass(frozen=True, slots=True)
class ValueChange:
    """`old` is no longer so; `new` has taken its place."""

    old: str
    new: str
    is_rename: bool = False
    """The same thing under another name: every memory of it follows."""


def value_kind(text: str) -> str | None:
    """The kind of the value in a text: an address, a path, a day, a time, a number or a name."""
    return next((kind for kind, form in _KINDS.items() if form.search(f" {text}")), None)


def value_in(text: str, kind: str) -> str | None:
    """The last value of this kind."""
    found = _KINDS[kind].findall(f" {text}")
    return found[-1].strip().rstrip(".,;:!?") if found else None


def without_correction(sentence: str) -> str:
    return CORRECTION.sub("", sentence, count=1).strip(" ,:")


def anaphoric_value(sentence: str) -> str | None:
    """The value of a correction that names its subject only by a pronoun, or not at all."""
    if match := _ANAPHORA.match(sentence):
        return match["value"].strip(" .!")
    is_bare = len(sentence.split()) <= 2 and value_kind(sentence) in ("address", "path", "number")
    return sentence.strip(" .!") if is_bare else None


def forgotten(sentence: str) -> str | None:
    """What a person asks to forget."""
    match = FORGET.match(sentence)
    return match["what"].strip(" .!") if match and not _POINTLESS.match(match["what"]) else None


def exchange_of(sentence: str) -> ValueChange | None:
    for form in (*_RENAMED, *_EXCHANGED):
        if match := form.search(_POLITE.sub("", sentence)):
            old, new = (_ARTICLES.sub("", match[name]).rstrip(".,;:!") for name in ("old", "new"))
            is_rename = form in _RENAMED
            if is_rename and value_kind(old) is None:  # "the release branch is now called ..."
                continue
            if old.lower() != new.lower() and not _POINTLESS.match(old):
                return ValueChange(old, new, is_rename)
    return None


def change_in_progress(sentence: str) -> ValueChange | None:
    match = _CHANGING.search(sentence)
    if match is None:
        return None
    old, new = (_ARTICLES.sub("", match[name]).rstrip(".,;:!") for name in ("old", "new"))
    return None if old.lower() == new.lower() or _POINTLESS.match(old) else ValueChange(old, new)


def names_in(text: str) -> list[str]:
    """The names in a text: of people, products, projects. The first word of a sentence does not
    count, because it always has a capital letter, nor do days and months."""
    found = (name for name in _KINDS["name"].findall(re.sub(r"([.!?])\s+\S+", r"\1", text)))
    return [name for name in dict.fromkeys(found) if not _CALENDAR.fullmatch(name)]


def says_no_longer(sentence: str) -> bool:
    return _NO_LONGER.search(sentence) is not None


def says_also(sentence: str) -> bool:
    """Whether the sentence says that something else stays true beside it."""
    return _ALSO.search(sentence) is not None


def without_old_parts(sentence: str) -> str:
    """The sentence without what it says is not so: the text that a title is made of."""
    return _OLD_PARTS.sub("", sentence).strip()


def frame_of(sentence: str) -> Frame | None:
    """The subject, relation and value of a sentence with a relation that has one value."""
    plain = _TAIL.sub("", _TAIL.sub("", _POLITE.sub("", sentence.strip())))
    if special := _special_frame(plain):
        return special
    for name, form in _RELATIONS:
        match = form.search(plain)
        if match is None or not match.start():
            continue
        subject, value = plain[: match.start()], plain[match.end() :]
        key = frozenset(stems(subject)) - _CHANGE_WORDS or _person(subject)
        if not key or not value or len(subject.split()) > _MAX_SUBJECT:
            return None
        return Frame((name, key), value)
    return None


_MAX_SUBJECT = 8
"""Words; a longer beginning is a clause, not a subject."""


def _special_frame(plain: str) -> Frame | None:
    if match := _CALL_ME.match(plain):
        return Frame(("be", frozenset(("i", "name"))), match["value"])
    if match := _OWNS.match(plain):
        verb = match["verb"].split()[-1 if " " not in match["verb"] else -2]
        return Frame((f"owner {verb}", frozenset(stems(match["what"]))), match["value"])
    if match := _PREFERS.match(plain):
        return _preference(match["value"], match["place"], match["what"])
    if match := _ANSWERS.match(plain):
        return Frame(("in", frozenset(stems(match["what"]))), match["value"])
    return None


def _preference(value: str, place: str | None, what: str | None) -> Frame | None:
    if what:
        return Frame((f"prefer {place}", frozenset(stems(what))), value)
    words = value.split()
    if len(words) == 2:  # an adjective and what it describes: short answers
        return Frame(("prefer", frozenset(stems(words[1]))), words[0])
    return None


def _person(subject: str) -> frozenset[str]:
    """`I` and `my name`, whose words are all stop words to a search."""
    return (
        frozenset(("i",)) if re.fullmatch(r"i|my", subject.strip(), re.IGNORECASE) else frozenset()
    )


def are_same_value(one: Frame, other: Frame) -> bool:
    return one.value_stems == other.value_stems


def can_replace(new: Frame, old: Frame) -> bool:
    """Whether a statement says something else about what an older one states."""
    (relation, subject), (old_relation, old_subject) = new.key, old.key
    if subject != old_subject or are_same_value(new, old):
        return False
    kind = value_kind(new.value)
    if relation == old_relation:
        return relation != "be" or (kind is not None and kind == value_kind(old.value))
    other = old_relation if relation == "*" else relation
    if "*" not in (relation, old_relation) or other not in ("at", "on", "be"):
        return False
    return other == "at" or (kind not in (None, "name") and kind == value_kind(old.value))


def title_of(sentence: str) -> str:
    """A few words that say what a sentence states, without what it says is not so."""
    exchange = exchange_of(sentence)
    is_negated = exchange is None and says_no_longer(sentence)
    plain = without_old_parts(sentence)
    words = [
        word for word in content_words(plain) if not is_negated or word not in _NO_LONGER_WORDS
    ]
    return " ".join((["no longer"] if is_negated else []) + words[:_TITLE_WORDS])


_TITLE_WORDS = 6  # of a note's name
_NO_LONGER_WORDS = frozenset(("longer", "more", "any", "anymore", "stopped"))


def is_durable(sentence: str) -> bool:
    """Whether a statement of a person is worth remembering: it states a value, not news."""
    frame = frame_of(sentence)
    if frame is None or frame.key[1] & _NEWS or len(sentence.split()) > _MAX_WORDS:
        return False
    if frame.key[0].startswith(("owner", "prefer", "in")):
        return True
    return value_kind(sentence.partition(" ")[2]) is not None


_MAX_WORDS = 25  # of a sentence that states something; longer ones tell a story
_NEWS = frozenset(
    map(
        lambda word: stems(word)[0],
        ("error", "bug", "test", "failure", "problem", "issue", "crash", "exception", "warning",
         "output", "result", "diff", "answer", "question", "file", "function", "line", "task"),
    )
)  # fmt: skip
"""Subjects of the work at hand, whose state changes with the next command."""


def _value_stems(value: str) -> list[str]:
    text = re.sub(r"(?<=\d)[,'](?=\d{3}\b)", "", value)
    text = re.sub(r"\b(?:an?|each|every)\s+(?=(?:day|week|month|year|hour)\b)", "per ", text)
    return [stem for stem in stems(text) if stem not in _CHANGE_WORDS]
