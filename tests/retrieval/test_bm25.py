"""Ranking names and texts by a query."""

from collections.abc import Sequence

import pytest

from mainspring.retrieval.bm25 import Bm25Index, RankedText

TOOLS = Bm25Index(
    [
        RankedText("rm", "delete_directory", "Removes a directory with all that is in it.", "path"),
        RankedText("ls", "list_directory", "Names what is in a directory.", "path"),
        RankedText("mail", "send_mail", "Sends an e-mail.", "recipient subject body"),
    ]
)


def test_related_words_find_texts_without_a_shared_word():
    assert TOOLS.search("erase the folder", 1) == ["rm"]
    assert TOOLS.search("enumerate folders", 1) == ["ls"]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("hand it over to Anna", "tracker_assign_issue"),
        ("I'd like somebody else to own this: hand ticket to Sam", "tracker_assign_issue"),
        ("put lunch with Sam on my calendar", "create_event"),
        ("am I free on Friday", "list_events"),
        ("how far is it from the airport", "distance_matrix"),
    ],
)
def test_phrases_find_texts_without_a_shared_word(query: str, best: str):
    names = ("tracker_assign_issue", "tracker_get_issue", "create_event", "list_events")
    texts = [RankedText(name, name, "") for name in (*names, "distance_matrix", "read_file")]
    assert Bm25Index(texts).search(query, 1) == [best]


def test_headings_of_a_description_do_not_count():
    texts = [
        RankedText("a", "x1", "Purpose: 1. Retrieves an invoice. Guardrails: never print one."),
        RankedText(
            "b", "x2", "Guardrails: 1. Never print an invoice. Purpose: 1. Retrieves a parcel."
        ),
    ]
    assert Bm25Index(texts).search("parcel", 1) == ["b"]
    assert Bm25Index(texts).search("invoice", 2) == ["a", "b"]


def test_input_parameters_are_searched():
    assert TOOLS.search("recipients", 5) == ["mail"]


def test_an_exact_key_comes_first():
    assert TOOLS.search("LS", 1) == ["ls"]


def test_a_query_of_stop_words_is_searched():
    assert Bm25Index({"who": "who is it"}).search("who", 1) == ["who"]
    assert Bm25Index({}).search("anything", 3) == []


def test_the_requested_action_ranks_first():
    notes = Bm25Index(
        {f"{verb}_note": f"{verb.title()} a note." for verb in ("create", "delete", "get")}
    )
    assert notes.search("erase the note", 1) == ["delete_note"]
    assert notes.search("which notes are there", 1) == ["get_note"]


def test_a_name_without_extra_words_ranks_first():
    reports = Bm25Index({"create_cost_report": "Create a report.", "create_report": "Create one."})
    assert reports.search("make a report", 1) == ["create_report"]


def test_results_include_other_groups_of_equal_relevance():
    verbs = ("export", "get", "list", "search", "read", "find")
    many = [
        RankedText(f"a_{verb}", f"{verb}_report", "About reports.", group="a") for verb in verbs
    ]
    other = RankedText("b", "report_views", "About reports and how often they are read.", group="b")
    assert "b" in Bm25Index([*many, other]).search("what is in the report", 4)


def test_vectors_find_texts_without_a_shared_word():
    def encode(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] if "car" in text or "lorry" in text else [0.0, 1.0] for text in texts]

    texts = {"wash_car": "Clean it.", "read_mail": "Show it."}
    assert Bm25Index(texts).search("lorry", 1) == []
    assert Bm25Index(texts, encode=encode).search("lorry", 1) == ["wash_car"]
