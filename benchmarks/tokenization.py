"""Speed of tokenization, and its verification on all available texts.

    python benchmarks/tokenization.py --vocab=.../vocab.txt --text=.../enwiki_30mb.txt
    python benchmarks/tokenization.py --verify --data=../shared/data

Speed: megabytes of UTF-8 per second on one core, the lines of a text file one by one (GraphTokenizer
and Hugging Face `tokenizers`: 1,000 at a time). "cold" starts with empty caches. "warm" repeats the same
text, for tokenizers with a cache of words.

`--verify` compares, with no tolerance: `tokenize` with tests/reference/wordpiece_rules.py, `encode`
with `convert_tokens_to_ids(tokenize(text))`, and GraphTokenizer with `encode`, on

* every code point in nine surroundings, cased and uncased, with a vocabulary of all characters;
* every line of the vocabularies in DATA/vocab;
* every line of DATA/text/*.txt and every context and question of DATA/squad/*.json.
"""

import argparse
import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import tensorflow as tf  # noqa: E402
from squad import squad_texts  # noqa: E402

from bert_tf.serving.text_tokenizer import GraphTokenizer  # noqa: E402
from bert_tf.tokenization import FullTokenizer  # noqa: E402
from reference import wordpiece_rules  # noqa: E402

SURROUNDINGS = ("%", "a%b", "A%A", "%A", "AΣ%", "AΣ%A", "%Σ", "A.%Σ%.x", "1%\u302e\u1b44%\u0301?x")
Tokenizer = Callable[[tf.Tensor], tf.RaggedTensor]
NOT_TEXT = range(0xD800, 0xE000)  # surrogates, which UTF-8 cannot encode

# Vocabulary -> (do_lower_case, its texts).
VOCABULARIES = {
    "bert-base-uncased": (True, ("enwiki", "squad")),
    "bert-base-cased": (False, ("enwiki", "squad")),
    "bert-base-chinese": (True, ("zhwiki",)),
    "bert-base-multilingual-cased": (False, ("kowiki", "zhwiki")),
}


def batches(items: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def lines_of(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="\n") as file:
        yield from file


# ------------------------------------------------------------------------------------------- speed


def measure_speed(vocab_file: str, text_file: Path, do_lower_case: bool, megabytes: float) -> None:
    lines, size = [], 0
    for line in lines_of(text_file):
        size += len(line.encode())
        lines.append(line.rstrip("\n"))
        if size >= megabytes * 1e6:
            break
    print(f"{size / 1e6:.1f} MB of {text_file}, {len(lines):,} lines; MB/s of one core")
    print(f"{'':36}    cold    warm")
    full = FullTokenizer(vocab_file, do_lower_case)
    graph = GraphTokenizer(list(full.vocab), do_lower_case)
    thousands = list(batches(lines, 1000))

    def one_by_one(function: Callable[[str], object]) -> Callable[[], None]:
        def run() -> None:
            for line in lines:
                function(line)

        return run

    def by_thousands(function: Callable[[list[str]], object]) -> Callable[[], None]:
        def run() -> None:
            for batch in thousands:
                function(batch)

        return run

    graph(tf.constant([""]))  # trace
    oracle = functools.partial(
        wordpiece_rules.word_pieces, vocab=full.vocab, do_lower_case=do_lower_case
    )
    report("FullTokenizer.encode", one_by_one(full.encode), size, warm=True)
    report("FullTokenizer.tokenize", one_by_one(full.tokenize), size)
    report("tests/reference/wordpiece_rules", one_by_one(oracle), size)
    report("GraphTokenizer", by_thousands(lambda batch: graph(tf.constant(batch))), size)
    try:
        import tokenizers
    except ImportError:
        print("Hugging Face tokenizers: not installed")
    else:
        peer = tokenizers.BertWordPieceTokenizer(vocab_file, lowercase=do_lower_case)
        encode = functools.partial(peer._tokenizer.encode_batch_fast, add_special_tokens=False)
        report(
            f"Hugging Face tokenizers {tokenizers.__version__}", by_thousands(encode), size, True
        )


def report(name: str, run: Callable[[], None], size: int, warm: bool = False) -> None:
    """Print the speed by processor time, which other processes hardly affect."""
    speeds = []
    for _ in range(2 if warm else 1):
        start = time.process_time()
        run()
        speeds.append(size / 1e6 / (time.process_time() - start))
    print(f"{name:36}", "".join(f"{speed:8.2f}" for speed in speeds), flush=True)


# ------------------------------------------------------------------------------------ verification


class Verification:
    """Comparison of the tokenizers with each other and the oracle, with counts."""

    def __init__(self):
        self.num_texts = self.num_differences = 0

    def verify(self, name: str, texts: Iterable[str], full: FullTokenizer, graph: Tokenizer):
        start, num_texts, num_differences = time.time(), 0, 0
        cover = functools.lru_cache(1 << 20)(lambda word: wordpiece_rules.cover(word, full.vocab))
        for batch in batches(texts, 2000):
            for text, graph_ids in zip(batch, graph(tf.constant(batch)).to_list(), strict=True):
                tokens = full.tokenize(text)
                ids = full.encode(text)
                words = wordpiece_rules.basic_tokens(text, full.do_lower_case)
                expected = [piece for word in words for piece in cover(word)]
                if not (tokens == expected and ids == graph_ids == ids_of(full, expected)):
                    num_differences += 1
                    if num_differences <= 5:
                        print(
                            f"  {text!r:.200}\n  rules {expected!r:.300}\n  full  {tokens!r:.300}"
                        )
                        print(f"  ids {ids!r:.200}\n  graph {graph_ids!r:.200}")
            num_texts += len(batch)
        seconds = time.time() - start
        print(
            f"{name:60} {num_texts:9,} texts {num_differences:5} differ {seconds:6.0f} s",
            flush=True,
        )
        self.num_texts += num_texts
        self.num_differences += num_differences


def ids_of(full: FullTokenizer, tokens: list[str]) -> list[int]:
    return [full.vocab[token] for token in tokens]


def verify_code_points(verification: Verification, make: Callable[..., Tokenizer]) -> None:
    chars = [chr(code) for code in range(1, 0x110000) if code not in NOT_TEXT]
    letters = [char for char in chars if not char.isspace()]
    with tempfile.TemporaryDirectory() as folder:
        vocab_file = Path(folder, "vocab.txt")
        tokens = ["[UNK]", *letters, *("##" + letter for letter in letters)]
        vocab_file.write_text("\n".join(tokens), encoding="utf-8", newline="\n")
        for do_lower_case in (True, False):
            full = FullTokenizer(vocab_file, do_lower_case)
            graph = make(list(full.vocab), do_lower_case)
            for shape in SURROUNDINGS:
                texts = (shape.replace("%", char) for char in ["\0", *chars])
                case = "uncased" if do_lower_case else "cased"
                verification.verify(f"code points, {case}, {shape!r}", texts, full, graph)


def verify_texts(verification: Verification, make: Callable[..., Tokenizer], data: Path) -> None:
    vocab_files = sorted(data.glob("vocab/*.txt"))
    for vocab_file in vocab_files:
        name = vocab_file.name.removesuffix(".vocab.txt")
        do_lower_case, kinds = VOCABULARIES[name]
        full = FullTokenizer(vocab_file, do_lower_case)
        graph = make(list(full.vocab), do_lower_case)
        for other in vocab_files:
            verification.verify(f"{name}: {other.name}", lines_of(other), full, graph)
        for path in sorted(data.glob("text/*.txt")):
            if path.name.startswith(kinds):
                verification.verify(f"{name}: {path.name}", lines_of(path), full, graph)
        if "squad" in kinds:
            for path in sorted(data.glob("squad/*.json")):
                verification.verify(f"{name}: {path.name}", squad_texts(path), full, graph)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = ROOT.parent / "shared" / "data"
    parser.add_argument("--data", type=Path, default=data, help="folder with vocab, text, squad")
    parser.add_argument("--vocab", help="for the speed; default: DATA/vocab, uncased")
    parser.add_argument("--text", type=Path, help="for the speed; default: DATA/text, English")
    parser.add_argument("--cased", action="store_true", help="do not lower-case (speed only)")
    parser.add_argument("--megabytes", type=float, default=30, help="of text, for the speed")
    parser.add_argument("--verify", action="store_true", help="compare instead of measuring")
    parser.add_argument("--skip_code_points", action="store_true", help="verify texts only")
    arguments = parser.parse_args()
    if arguments.verify:
        verification = Verification()
        verify_texts(verification, GraphTokenizer, arguments.data)
        if not arguments.skip_code_points:
            verify_code_points(verification, GraphTokenizer)
        print(f"{verification.num_differences} of {verification.num_texts:,} texts differ.")
        sys.exit(verification.num_differences > 0)
    measure_speed(
        arguments.vocab or str(arguments.data / "vocab/bert-base-uncased.vocab.txt"),
        arguments.text or arguments.data / "text/enwiki_30mb.txt",
        do_lower_case=not arguments.cased,
        megabytes=arguments.megabytes,
    )


if __name__ == "__main__":
    main()
