"""A table of vectors so small that one can say what is near what."""

import json
from pathlib import Path

import numpy as np

ROWS = {
    "cat": (1.0, 0.1, 0.0),
    "kitten": (0.95, 0.2, 0.0),
    "##s": (0.0, 0.0, 0.0),
    "rocket": (0.0, 0.1, 1.0),
    "launch": (0.1, 0.0, 0.9),
    "the": (0.1, 0.1, 0.1),
    "sleeps": (0.3, 0.9, 0.0),
}


def write_table(place: Path, rows: dict[str, tuple[float, ...]] = ROWS) -> Path:
    values = np.array(list(rows.values()), np.float32)
    scale = np.abs(values).max(axis=1, keepdims=True) / 127 + 1e-9
    vocabulary = np.frombuffer("\n".join(rows).encode(), np.uint8)
    np.savez(place, q=np.rint(values / scale).astype(np.int8), s=scale, vocab=vocabulary)
    return place


def write_model2vec(folder: Path) -> Path:
    folder.mkdir()
    values = np.array(list(ROWS.values()), np.float32)
    entry = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [0, values.nbytes]}
    head = json.dumps({"embeddings": entry}).encode()
    content = len(head).to_bytes(8, "little") + head + values.tobytes()
    (folder / "model.safetensors").write_bytes(content)
    vocabulary = {piece: at for at, piece in enumerate(ROWS)}
    tokenizer = {"model": {"type": "WordPiece", "vocab": vocabulary}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder
