"""Texts embedded in a second, through HTTP, against llama-server over the same file: requests of 1, 16 and 256 texts.

The model is an encoder of 11 M random parameters (6 layers of 384), with WordPiece and mean pooling; a text has about a
dozen words. The rounds of both are interleaved, and both compute attention in full, so that their vectors can be
compared: the largest difference is printed. Build the peer with bench/peers.sh llama-server.
Usage: python bench/embeddings.py [--threads 2] [--repeat 5]
"""

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import gguf
import httpx
import numpy as np
from gguf import PoolingType, TokenType

HERE = Path(__file__).parent
MODEL = HERE / "out/random-embedder-f32.gguf"
PEER = HERE / "peers/build/bin/llama-server"
COUNTS = (1, 16, 256)
CONTEXT, WIDTH, LAYERS, HEADS, INNER, VOCABULARY = 512, 384, 6, 12, 1536, 4000
WORDS, START_S = 12, 60.0
PRECISE = ("-fa", "off", "-ctk", "f32", "-ctv", "f32")


def words() -> list[str]:
    """Made-up words, each an entry of the vocabulary."""
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    return [one + other for one in syllables for other in syllables][: VOCABULARY - 100]


def write(path: Path) -> None:
    """Write the model."""
    random = np.random.default_rng(0)
    letters = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokens = [*specials, *(f"▁{word}" for word in (*words(), *letters)), *letters]
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name(path.stem)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(PoolingType.MEAN)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("jina-v2-en")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * len(specials) + [TokenType.NORMAL] * (len(tokens) - len(specials)))
    writer.add_token_type_count(2)
    for name, token in (("pad", 0), ("unk", 1), ("bos", 2), ("eos", 3), ("sep", 3)):
        getattr(writer, f"add_{name}_token_id")(token)

    def weight(name: str, *shape: int, scale: float = 1.0) -> None:
        values = random.standard_normal(shape, dtype=np.float32) * np.float32(scale / np.sqrt(shape[-1]))
        writer.add_tensor(f"{name}.weight", values)
        if name.startswith("blk"):
            writer.add_tensor(f"{name}.bias", np.zeros(shape[0], np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(WIDTH, np.float32))

    weight("token_embd", len(tokens), WIDTH)
    weight("token_types", 2, WIDTH)
    weight("position_embd", CONTEXT, WIDTH)
    norm("token_embd_norm")
    for layer in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weight(f"blk.{layer}.{part}", WIDTH, WIDTH)
        weight(f"blk.{layer}.ffn_up", INNER, WIDTH)
        # Small, as in a trained model: the library's GELU is a table of 16 bits, which shows the last bit of a float.
        weight(f"blk.{layer}.ffn_down", WIDTH, INNER, scale=0.1)
        norm(f"blk.{layer}.attn_output_norm")
        norm(f"blk.{layer}.layer_output_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@contextmanager
def serving(command: Sequence[str], port: int) -> Iterator[httpx.Client]:
    """A server, until it is asked for no more."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as http:
            deadline = time.monotonic() + START_S
            while not is_ready(http):
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{command[0]} did not start")
                time.sleep(0.1)
            yield http
    finally:
        process.terminate()
        process.wait()


def is_ready(http: httpx.Client) -> bool:
    try:
        return http.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(http: httpx.Client, texts: Sequence[str]) -> tuple[float, np.ndarray]:
    """Seconds, and the vectors."""
    began = time.perf_counter()
    answer = http.post("/v1/embeddings", json={"input": texts}).raise_for_status().json()
    took = time.perf_counter() - began
    return took, np.array([one["embedding"] for one in sorted(answer["data"], key=lambda one: one["index"])])


def compare(ours: httpx.Client, peer: httpx.Client, repeat: int) -> None:
    random, known = np.random.default_rng(1), words()
    print(f"{'texts':>6}{'peer/s':>10}{'ours/s':>10}{'ratio':>8}{'difference':>12}")
    for count in COUNTS:
        speeds: dict[str, list[float]] = {"ours": [], "peer": []}
        difference = 0.0
        for turn in range(repeat + 1):
            texts = [" ".join(random.choice(known, WORDS)) for _ in range(count)]
            mine, theirs = ask(ours, texts), ask(peer, texts)
            difference = max(difference, float(np.abs(mine[1] - theirs[1]).max()))
            if turn:  # the first warms both
                speeds["ours"].append(count / mine[0])
                speeds["peer"].append(count / theirs[0])
        our, their = statistics.median(speeds["ours"]), statistics.median(speeds["peer"])
        paired = statistics.median(m / t for m, t in zip(speeds["ours"], speeds["peer"], strict=True))
        print(f"{count:>6}{their:>10.1f}{our:>10.1f}{paired:>8.2f}{difference:>12.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    if not PEER.exists():
        sys.exit(f"no llama-server: {PEER} is not there (bench/peers.sh llama-server)")
    if not MODEL.exists():
        write(MODEL)
    ports = free_port(), free_port()
    with tempfile.TemporaryDirectory() as data:
        own = [sys.executable, "-m", "tenuto", "serve", "--model", str(MODEL), "--data-dir", data]
        own += ["--port", str(ports[0]), "--threads", str(given.threads)]
        their = [
            str(PEER),
            "-m",
            str(MODEL),
            "--port",
            str(ports[1]),
            "-t",
            str(given.threads),
            "--embeddings",
            *PRECISE,
        ]
        with serving(own, ports[0]) as ours, serving(their, ports[1]) as peer:
            compare(ours, peer, given.repeat)


if __name__ == "__main__":
    main()
