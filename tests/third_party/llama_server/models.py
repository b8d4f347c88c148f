"""Models that fit what a test of llama-server's asks for: all are here, or made here, and none is downloaded."""

import shutil
from pathlib import Path
from typing import Any

from tests.e2e.server import script
from tests.embedded import gguf_file, with_template
from tests.pipelines.tiny_embedders import Kind, tiny_bert

EMBEDDER, RANKER = "bert-bge-small", "jina-reranker"
SAYS = "Suddenly, the best book was found under the bed."
SCRIPTED = ("test_compat_oai_responses.py",)
"""Here the text itself is asserted: so a script says it, and all around it is the server's own."""
WORDS = ("i", "believe", "the", "meaning", "of", "life", "is", "this", "a", "test", "hello", "world", "string", ".")
CONTEXT = 1024


def fitting(asked: Any, module: str, folder: Path) -> str:
    """What `--model` takes for what a `ServerProcess` asks for, named by its alias."""
    place = folder / f"{len(list(folder.iterdir()))}"
    place.mkdir()
    alias = (asked.model_alias or "model").partition(",")[0]
    if alias in (EMBEDDER, RANKER):
        return str(tiny_bert(place / f"{alias}.gguf", _pooling(asked, alias), context=CONTEXT, words=WORDS))
    if module in SCRIPTED:
        return script(place / f"{alias}.json", [{"user_contains": "", "text": SAYS}])
    file = place / f"{alias}.gguf"
    if asked.chat_template_file:
        shutil.move(with_template("embedded:gguf", Path(asked.chat_template_file).read_text(), place), file)
    else:
        file.symlink_to(gguf_file())
    return str(file)


def _pooling(asked: Any, alias: str) -> Kind:
    if alias == RANKER:
        return "rank"
    kinds: dict[str | None, Kind] = {None: "cls", "last": "last", "mean": "mean", "none": "none"}
    return kinds[asked.pooling]
