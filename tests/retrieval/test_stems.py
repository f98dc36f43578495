"""Words and stems: every index and every query cut texts in the same way."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.row_checks import for_each

from mainspring.retrieval.passage_index import Container, Passage, PassageIndex
from mainspring.retrieval.sqlite_passages import SqlitePassages
from mainspring.retrieval.stems import STOP_WORDS, name_words, stem, stems, words

PAIRS = """
consign:consign consigned:consign consigning:consign consignment:consign consist:consist
consistency:consist consistently:consist consolation:consol knack:knack
knackeries:knackeri knightly:knight knave:knave dying:die generously:generous
generate:generat communism:communism skies:sky news:news proceed:proceed happy:happi
cried:cri ties:tie gas:gas kiwis:kiwi hopping:hop hoping:hope added:add luxuriated:luxuri
sensational:sensat feed:feed agreed:agre rational:ration relational:relat adoption:adopt
replacement:replac hopefulness:hope controlling:control roll:roll organization:organiz
university:universiti evening:evening yes:yes boy:boy flying:fli
"""


@for_each("pair", PAIRS.split())
def test_stems_are_those_of_the_english_snowball_stemmer(pair: str):
    word, expected = pair.split(":")
    assert stem(word) == expected


def test_names_are_split_at_capitals_and_underscores():
    assert name_words("readFile HTTPServer mcp__git__git_log") == [
        *("read", "file", "http", "server", "mcp", "git", "git", "log")
    ]


def test_accents_are_ignored_and_scripts_without_spaces_are_split_into_pairs():
    assert words("Café ÉTÉ") == ["cafe", "ete"]
    assert words("記憶検索") == ["記憶", "憶検", "検索"]
    assert words("Привет") == ["привет"]
    assert words("한국어") == ["한국", "국어"]


def test_stop_words_are_left_out():
    assert stems("What is the name of the replies?") == ["name", "repli"]


@given(st.text())
def test_any_text_can_be_stemmed(text: str):
    assert all(stems(text)) or stems(text) == []


NOTES = (
    # a note, a question with other forms of its words, and keywords
    (
        "Wir veröffentlichen neue Versionen immer am Donnerstag.",
        "Welche Version ist neu?",
        "Donnerstag",
    ),
    (
        "Die Datenbanken liegen auf dem zweiten Server.",
        "Wer pflegt die Datenbank?",
        "Datenbanken",
    ),
    (
        "Les sauvegardes de la base sont journalières.",
        "Quelle est la sauvegarde journalière ?",
        "sauvegardes journalières",
    ),
    (
        "Publicamos las versiones nuevas los jueves.",
        "¿Quién lo publica?",
        "versión jueves",
    ),
    (
        "Le fatture sono inviate il primo giorno del mese.",
        "Quando viene inviata la fattura?",
        "fatture mese",
    ),
    (
        "As faturas são enviadas no primeiro dia do mês.",
        "Quem envia os documentos?",
        "faturas mês",
    ),
    (
        "De facturen worden op maandag verstuurd.",
        "Waar is de factuur?",
        "facturen maandag",
    ),
    (
        "Fakturorna skickas ut den första dagen i månaden.",
        "Vilken månad är det?",
        "fakturorna månaden",
    ),
    (
        "Fakturaerne sendes til kunden om mandagen.",
        "Hvor er fakturaen?",
        "fakturaerne mandagen",
    ),
    (
        "Laskut lähetetään asiakkaille ja ne maksetaan heti.",
        "Missä on lasku?",
        "laskut asiakkaille",
    ),
    (
        "Мы выпускаем новые версии по четвергам.",
        "Когда выходит новая версия?",
        "версии",
    ),
    (
        "Οι εκδόσεις βγαίνουν κάθε Πέμπτη.",
        "Πού είναι η έκδοση;",
        "εκδόσεις",
    ),
)


def find_notes(query: str) -> list[str]:
    index = PassageIndex(SqlitePassages(None))
    texts = [note for note, _, _ in NOTES] + ["We release on Thursdays.", "The server is down."]
    index.put(
        *(Container(scope="a", name=text, hash="", passages=[Passage(text=text)]) for text in texts)
    )
    hits = index.search(query, ["a"], 3)
    index.close()
    return [hit.container for hit in hits]


@pytest.mark.parametrize(("note", "question", "keywords"), NOTES)
def test_a_note_in_another_language_is_found_by_inflected_words(
    note: str, question: str, keywords: str
):
    assert find_notes(question)[0] == note
    assert find_notes(keywords)[0] == note
    assert find_notes(note)[0] == note


def test_english_texts_have_english_stems_despite_foreign_quotes():
    for text in ("The replies were sent to den Haag.", "See ya!", "les releases are on Thursdays"):
        assert stems(text) == [stem(word) for word in words(text) if word not in STOP_WORDS]


def test_without_the_stemmers_whole_words_are_used():
    program = (
        "import sys; sys.modules['snowballstemmer'] = None\n"
        "from mainspring.retrieval.stems import fingerprint, stems\n"
        "print(fingerprint(), *stems('Wir veröffentlichen die Datenbanken'))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert ran.stdout.split() == ["porter2/2/", "wir", "veroffentlichen", "die", "datenbanken"]
