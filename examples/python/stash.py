"""A long tool stores how far it has come; after a crash it goes on from there."""

import anyio

from mainspring import Agent, Call, run, tool


@tool(in_doubt="retry")
async def count_words(pages: int, call: Call) -> str:
    """Count the words of a book, page by page."""
    page, words = call.read_stash(tuple[int, int], (0, 0))
    while page < pages:
        await anyio.sleep(0.05)  # reading takes time
        page, words = page + 1, words + 100 + page
        await call.stash((page, words))
        call.say(f"page {page}")
    return f"{words} words"


librarian = Agent(name="librarian", tools=[count_words])
print(run(librarian, "How many words has the book of 20 pages?", key="stash").output)
