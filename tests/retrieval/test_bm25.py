"""Ranking names and texts by a query."""

from mainspring.retrieval.bm25 import Bm25Index, Text

TOOLS = Bm25Index(
    [
        Text("rm", "delete_directory", "Removes a directory with all that is in it.", "path"),
        Text("ls", "list_directory", "Names what is in a directory.", "path"),
        Text("mail", "send_mail", "Sends an e-mail.", "recipient subject body"),
    ]
)


def test_related_words_find_what_the_words_themselves_do_not():
    assert TOOLS.search("erase the folder", 1) == ["rm"]
    assert TOOLS.search("enumerate folders", 1) == ["ls"]


def test_inputs_are_searched_too():
    assert TOOLS.search("recipients", 5) == ["mail"]


def test_an_exact_key_comes_first():
    assert TOOLS.search("LS", 1) == ["ls"]


def test_a_query_of_stop_words_only_is_a_query():
    assert Bm25Index({"who": "who is it"}).search("who", 1) == ["who"]
    assert Bm25Index({}).search("anything", 3) == []
