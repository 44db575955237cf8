"""create_vocab compared with tensorflow-text's learner and the published vocabularies.

    python benchmarks/create_vocab.py --data=../shared/data
    python benchmarks/create_vocab.py --data=../shared/data --cased

Both learners learn from the first 95 % of the documents of DATA/text/enwiki_30mb.txt, with the size of
the published vocabulary. Prints pieces per word and the fraction of unknown words, both of occurrences,
with words split by BasicTokenizer. The texts are the held-out documents, the contexts and questions of
SQuAD 1.1 dev (also Wikipedia), and SST-2 dev (film reviews). Seconds are processor time, including
reading and counting. tensorflow-text returns fewer tokens than requested, so ours is also measured with
that number. Each run takes about five minutes, nearly all for tensorflow-text.

    python benchmarks/create_vocab.py --data=../shared/data --vocab vocab/uncased_30522/vocab.txt

learns nothing and measures these files and the published ones: the table in vocab/README.md. Use
`--held_out FILE ...` for other texts.

    python benchmarks/create_vocab.py --size=120 --text=.../enwiki_30mb.txt

measures time and memory of create_vocab on a corpus of 120 MB. It repeats the text. Each time, words
with at most 20 occurrences are enciphered (vowels to vowels, consonants to consonants). The number of
distinct words therefore grows faster than in real text.
"""

import argparse
import multiprocessing
import os
import random
import re
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402
from squad import squad_texts  # noqa: E402

from bert_tf.data.tables import read_tsv  # noqa: E402
from bert_tf.options import make_options  # noqa: E402
from bert_tf.pretraining.create_vocab import (  # noqa: E402
    VocabularyOptions,
    count_words,
    create_vocab,
    first_tokens,
    learn_wordpieces,
    measure_coverage,
)
from bert_tf.tokenization import load_vocab  # noqa: E402

HELD_OUT_SHARE = 0.05  # of the documents, from the end


def documents(text_file: Path) -> list[str]:
    """Split a text at empty lines."""
    return [part for part in text_file.read_text(encoding="utf-8").split("\n\n") if part.strip()]


class Table:
    """Table with one line per vocabulary, printed as it grows."""

    def __init__(self, held_out: Mapping[str, Counter[str]]):
        self.held_out = held_out
        print(f"{'':46}{'tokens':>8}{'seconds':>9}" + "".join(f"{name:>22}" for name in held_out))

    def row(self, name: str, tokens: Iterable[str], seconds: float | None = None) -> None:
        tokens = list(tokens)
        line = f"{name:46}{len(tokens):8,}" + (f"{seconds:9.1f}" if seconds else " " * 9)
        for counts in self.held_out.values():
            coverage = measure_coverage(tokens, counts)
            line += f"{coverage.pieces_per_word:12.4f}{coverage.unknown_share:10.4%}"
        print(line, flush=True)


# ---------------------------------------------------------------------------------------- learners


def learn_ours(text_file: Path, vocab_size: int, do_lower_case: bool) -> tuple[list[str], float]:
    start = time.process_time()
    with text_file.open(encoding="utf-8") as lines:
        counts = count_words(lines, do_lower_case)
    tokens = learn_wordpieces(counts, vocab_size)
    return tokens, time.process_time() - start


def learn_tensorflow_text(
    text_file: Path, vocab_size: int, do_lower_case: bool
) -> tuple[list[str], float]:
    """Learn as in https://www.tensorflow.org/text/guide/subwords_tokenizer."""
    from tensorflow_text.tools.wordpiece_vocab import bert_vocab_from_dataset as learner

    start = time.process_time()
    tokens = learner.bert_vocab_from_dataset(
        tf.data.TextLineDataset(str(text_file)).batch(1000).prefetch(2),
        vocab_size=vocab_size,
        reserved_tokens=first_tokens(),
        bert_tokenizer_params={"lower_case": do_lower_case},
    )
    return tokens, time.process_time() - start


def compare_learners(table: Table, train: list[str], vocab_size: int, do_lower_case: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text_file = Path(folder, "train.txt")
        text_file.write_text("\n\n".join(train), encoding="utf-8")
        table.row("create_vocab", *learn_ours(text_file, vocab_size, do_lower_case))
        tokens, seconds = learn_tensorflow_text(text_file, vocab_size, do_lower_case)
        table.row("tensorflow-text", tokens, seconds)
        table.row("create_vocab, as many", *learn_ours(text_file, len(tokens), do_lower_case))


# ---------------------------------------------------------------------------------- time and memory


def write_large_corpus(text_file: Path, output_file: Path, megabytes: int) -> None:
    text = text_file.read_text(encoding="utf-8")
    word = re.compile("[A-Za-z]+")
    frequency = Counter(word.findall(text))
    generator = random.Random(0)
    size = 0
    with output_file.open("wb") as file:
        while size < megabytes * 1e6:
            copy = text
            if size:
                cipher = {}
                for letters in ("aeiou", "bcdfghjklmnpqrstvwxyz"):
                    shuffled = "".join(generator.sample(letters, len(letters)))
                    cipher |= str.maketrans(letters + letters.upper(), shuffled + shuffled.upper())
                new = {w: w.translate(cipher) if n <= 20 else w for w, n in frequency.items()}
                copy = word.sub(lambda match, new=new: new[match[0]], text)
            size += file.write(copy.encode()[: int(megabytes * 1e6) - size].rsplit(b"\n", 1)[0])
            size += file.write(b"\n\n")


def measure_time_and_memory(text_file: Path, megabytes: int, do_lower_case: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.txt")
        # In a new process, because the peak memory of a process never falls.
        arguments = (text_file, corpus, megabytes)
        writer = multiprocessing.get_context("spawn").Process(
            target=write_large_corpus, args=arguments
        )
        writer.start()
        writer.join()
        at_rest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        start, start_cpu = time.monotonic(), time.process_time()
        coverage = create_vocab(
            make_options(
                VocabularyOptions,
                input_file=str(corpus),
                output_dir=str(Path(folder, "vocab")),
                do_lower_case=do_lower_case,
            )
        )
        seconds, cpu = time.monotonic() - start, time.process_time() - start_cpu
        size = corpus.stat().st_size / 1e6
        highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{size:.0f} MB, {coverage.num_words:,} words counted")
        print(f"{seconds:.0f} s, {cpu:.0f} s of one core, {size / seconds:.1f} MB/s")
        print(f"{highest:.0f} MiB at most; {at_rest:.0f} MiB before (TensorFlow)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = ROOT.parent / "shared" / "data"
    parser.add_argument("--data", type=Path, default=data, help="folder with text, squad, vocab")
    parser.add_argument("--text", type=Path, help="to learn from; default: DATA/text, English")
    parser.add_argument("--cased", action="store_true", help="do not lower-case")
    parser.add_argument("--vocab", type=Path, nargs="+", help="measure these and learn nothing")
    parser.add_argument("--held_out", type=Path, nargs="+", help="texts to measure on")
    parser.add_argument("--size", type=int, help="measure time and memory with so many megabytes")
    arguments = parser.parse_args()
    do_lower_case = not arguments.cased
    text_file = arguments.text or arguments.data / "text/enwiki_30mb.txt"
    if arguments.size:
        measure_time_and_memory(text_file, arguments.size, do_lower_case)
        return
    parts = documents(text_file)
    num_train = int(len(parts) * (1 - HELD_OUT_SHARE) + 0.5)
    train, held_out = parts[:num_train], parts[num_train:]
    texts: dict[str, Iterable[str]] = {"held out": "\n".join(held_out).split("\n")}
    if (squad := arguments.data / "squad/dev-v1.1.json").exists():
        texts["SQuAD dev"] = squad_texts(squad)
    if (reviews := arguments.data / "glue/SST-2/dev.tsv").exists():
        texts["SST-2 dev"] = (row[0] for row in read_tsv(reviews))
    if arguments.held_out:
        texts = {file.name: file.open(encoding="utf-8") for file in arguments.held_out}
    counts = {name: count_words(lines, do_lower_case) for name, lines in texts.items()}
    for name, words in counts.items():
        print(f"{name}: {words.total():,} words, {len(words):,} different ones")

    table = Table(counts)
    kinds = ("uncased",) if do_lower_case else ("cased", "multilingual-cased")
    for kind in kinds:
        file = arguments.data / f"vocab/bert-base-{kind}.vocab.txt"
        if file.exists():
            table.row(f"bert-base-{kind}", load_vocab(file))
    for file in arguments.vocab or ():
        table.row("/".join(file.parts[-2:]), load_vocab(file))
    if not arguments.vocab:
        compare_learners(table, train, 30522 if do_lower_case else 28996, do_lower_case)


if __name__ == "__main__":
    main()
