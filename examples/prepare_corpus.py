"""WikiExtractor's output or plain text -> one sentence per line, an empty line after each document.

    pip install sentencex
    python examples/prepare_corpus.py --input_file=extracted --output_file=wiki.txt
    python examples/prepare_corpus.py --input_file='books/*.txt.gz' --output_file=b.txt --language=de

create_vocab and create_pretraining_data read this. The input is a file, a folder or a glob, plain or
.gz, in these forms:

    <doc id="9" title="Tides">      WikiExtractor: a title, then a paragraph per line, then </doc>
    {"title": "Tides", "text": ..   WikiExtractor --json: a document per line
    Tides are ...                   plain: a paragraph per line, an empty line between documents

Titles and headings of Wikipedia are left out, as BERT was trained without them.
"""

import argparse
import glob
import gzip
import html
import json
import os
import re
from pathlib import Path

import sentencex

DOC = re.compile(r'<doc\b(?:.*?\btitle="(.*)")?.*>')
# A mark within a text, or at its end another one than a full stop.
SENTENCES = re.compile(r"[.!?…。！？]\s*\S|[!?…。！？]$")


def find_files(pattern):
    """Return the files of a glob, those in folders included, sorted."""
    found = [Path(name) for name in glob.glob(pattern)]
    files = [file for path in found for file in ([path] if path.is_file() else path.rglob("*"))]
    return sorted(file for file in files if file.is_file() and not file.name.startswith("."))


def read_documents(file):
    """Yield documents as lists of paragraphs."""
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", encoding="utf-8") as lines:
        paragraphs, title = [], None
        for line in map(str.strip, lines):
            if line.startswith("{"):
                document = json.loads(line)
                texts = map(html.unescape, document["text"].split("\n"))
                yield without_headings(map(str.strip, texts), document.get("title"))
            elif match := DOC.fullmatch(line):
                title = html.unescape(match[1] or "")
            elif line == "</doc>":
                yield without_headings(map(html.unescape, paragraphs), title)
                paragraphs, title = [], None
            elif line:
                paragraphs.append(line)
            elif title is None:  # of plain text
                yield paragraphs
                paragraphs = []
        if title is not None:
            raise ValueError(f"{file}: the last <doc> has no </doc>; the file is cut off.")
        yield paragraphs


def without_headings(paragraphs, title):
    """Leave out the title, and headings: WikiExtractor writes "== Early life ==" as "Early life."."""
    return [p for p in paragraphs if p != title and (len(p.split()) > 6 or SENTENCES.search(p))]


def prepare_corpus(files, output_file, language="en"):
    """Write the sentences; return the numbers of documents and sentences."""
    num_documents = num_sentences = 0
    temporary = f"{output_file}.tmp"
    with open(temporary, "w", encoding="utf-8") as output:
        for file in files:
            for paragraphs in read_documents(file):
                pieces = (p for text in paragraphs for p in sentencex.segment(language, text))
                # A sentence has a letter or a digit; space within it is one space.
                sentences = [" ".join(p.split()) for p in pieces if any(map(str.isalnum, p))]
                if sentences:
                    output.write("\n".join(sentences) + "\n\n")
                    num_documents += 1
                    num_sentences += len(sentences)
    os.replace(temporary, output_file)  # the file is whole, or not there
    return num_documents, num_sentences


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input_file", required=True, help="file, folder or glob")
    parser.add_argument("--output_file", required=True)
    parser.add_argument("--language", default="en", help="ISO code of the text's language")
    arguments = parser.parse_args()
    corpus = find_files(arguments.input_file)
    documents, sentences = prepare_corpus(corpus, arguments.output_file, arguments.language)
    print(f"{documents:,} documents, {sentences:,} sentences in {arguments.output_file}")
