"""The sentence splitter of prepare_corpus, compared with the line breaks of a sentence-per-line file.

    python benchmarks/sentences.py --text=../shared/data/text/enwiki_30mb.txt [--splitter=sentencex]

joins the lines of each article into paragraphs, which end at a line without a sentence ending. Then
splits them, and prints precision and recall of the breaks, megabytes per second of one core, and some
disagreements.

The file's own breaks are not the truth: some follow "Mr.", "St." and "U.S.", and others are missing. The
numbers mainly show the agreement of two splitters. Read the disagreements.
"""

import argparse
import random
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bert_tf.pretraining.sentences import SPLITTERS, make_splitter

_LIKE_A_SENTENCE = re.compile(r"[.!?][\"')\]]*$")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True)
    parser.add_argument("--splitter", default="rules", choices=SPLITTERS)
    parser.add_argument("--start_mb", type=float, default=12.0)
    parser.add_argument("--size_mb", type=float, default=3.0)
    parser.add_argument("--shown", type=int, default=10, help="disagreements of each kind")
    arguments = parser.parse_args()
    split = make_splitter(arguments.splitter)
    start, size = int(arguments.start_mb * 1e6), int(arguments.size_mb * 1e6)
    data = Path(arguments.text).read_bytes()[start : start + size]
    paragraphs = joined(data.decode("utf-8", "ignore").split("\n"))
    texts = [" ".join(lines) for lines in paragraphs]

    begin = time.process_time()
    found = [split(text) for text in texts]
    seconds = time.process_time() - begin
    agreed, ours, theirs = 0, [], []
    for lines, text, sentences in zip(paragraphs, texts, found, strict=True):
        expected, actual = breaks(lines), breaks(sentences)
        agreed += len(expected & actual)
        ours += [context(text, place) for place in actual - expected]
        theirs += [context(text, place) for place in expected - actual]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    print(
        f"{arguments.splitter}: precision {agreed / (agreed + len(ours)):.4f}, "
        f"recall {agreed / (agreed + len(theirs)):.4f}, {megabytes / seconds:.1f} MB/s"
    )
    for title, places in (("only the splitter breaks", ours), ("only the file breaks", theirs)):
        print(f"\n{title}:")
        for place in random.Random(1).sample(places, min(arguments.shown, len(places))):
            print(f"  {place}")


def joined(lines: list[str]) -> list[list[str]]:
    """Group consecutive lines into paragraphs."""
    paragraphs: list[list[str]] = [[]]
    for line in map(str.strip, lines):
        if line:
            paragraphs[-1].append(line)
        if not line or not _LIKE_A_SENTENCE.search(line):
            paragraphs.append([])
    return [paragraph for paragraph in paragraphs if paragraph]


def breaks(sentences: list[str]) -> set[int]:
    """Return the ends of all sentences but the last, in characters without whitespace."""
    places, place = set(), 0
    for sentence in sentences[:-1]:
        place += len("".join(sentence.split()))
        places.add(place)
    return places


def context(text: str, place: int) -> str:
    """Return the text around a break."""
    visible = [index for index, char in enumerate(text) if not char.isspace()]
    before, after = visible[place - 1] + 1, visible[place]
    return f"{text[max(0, before - 60) : before]} || {text[after : after + 40]}"


if __name__ == "__main__":
    main()
