"""A process that is killed while it writes and indexes leaves whole files and an index that is
equal to one that is made anew."""

import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from tests.runtime.memory.memory_setup import ANNA, a_note, memory_folder

from mainspring.runtime.memory.search.memory_index import MemoryIndex

KILLS = 6
WORDS = [f"word{number}" for number in range(40)]


def write_forever(place: Path, seed: int) -> None:
    folder, random = memory_folder(place / "memory"), Random(seed)
    index = MemoryIndex({"agent": folder}, place / "index.db")
    for number in range(10_000):
        body = " ".join(random.choices(WORDS, k=12))
        folder.save(a_note(f"note {random.randrange(30)}", f"{body} {seed}-{number}"), ANNA)
        index.update("agent")
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


def search_results(index: MemoryIndex) -> list[set[tuple[str, str]]]:
    return [
        {(hit.note.path, hit.text) for hit in index.search(word, ["agent"], 100)} for word in WORDS
    ]


@pytest.mark.slow
def test_a_killed_writer_leaves_an_index_equal_to_a_rebuilt_one(tmp_path: Path):
    for seed in range(KILLS):
        command = [sys.executable, "-m", __spec__.name, str(tmp_path), str(seed)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(3 + seed):
                assert writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
        folder = memory_folder(tmp_path / "memory")
        assert all(note.body for note in map(folder.read, folder.paths()))
        index, anew = (
            MemoryIndex({"agent": folder}, tmp_path / "index.db"),
            MemoryIndex({"agent": folder}),
        )
        assert search_results(index) == search_results(anew)
        index.close()
        anew.close()


if __name__ == "__main__":
    write_forever(Path(sys.argv[1]), int(sys.argv[2]))
