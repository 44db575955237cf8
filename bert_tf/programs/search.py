"""search: the documents that belong to a query, found by embeddings and ranked by a reranker.

Source: Nogueira and Cho 2019, arXiv 1901.04085 (retrieve, then rerank).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from bert_tf.characters import is_blank
from bert_tf.data.files import json_line
from bert_tf.data.globs import check_not_an_input, expand_files
from bert_tf.data.lines import place_of, read_texts
from bert_tf.data.question_answering import read_squad
from bert_tf.data.streams import STANDARD_INPUT
from bert_tf.data.tables import TABLE_FORMATS, ending_of, read_table
from bert_tf.finetuning.embeddings_options import ANCHORS, POSITIVES
from bert_tf.limits import listed
from bert_tf.metrics import retrieval
from bert_tf.options import TableOptions, option
from bert_tf.prediction.classification import LabelModel
from bert_tf.prediction.encoder import EMBEDDING_POOLINGS
from bert_tf.predictor import Predictor, embed_all
from bert_tf.programs.predict_output import open_output

logger = logging.getLogger(__name__)

_QUERIES = 256  # answered together


@dataclass(frozen=True, kw_only=True)
class SearchOptions(TableOptions):
    """The flags of search."""

    only_answers: ClassVar[bool] = True

    model_dir: str = option(
        "Model that finds documents: any folder or export for embeddings, also one of "
        "sentence-transformers."
    )
    documents: str = option(
        "Comma list of files or globs of the documents: a text per line, .tsv, .csv, .jsonl, or the "
        "passages of SQuAD's .json."
    )
    document_column: str | None = option(
        "Column of a document in a table. Default: document, passage, positive, text, text_a or another "
        "name of a positive that run_embeddings finds.",
        default=None,
    )
    query: tuple[str, ...] | None = option(
        "A query; may be given several times. Default: those of --input_file.", default=None
    )
    input_file: str | None = option(
        "Comma list of files or globs with a query per line, tables, or the questions of SQuAD's .json. "
        "- is standard input, the default.",
        default=None,
    )
    query_column: str | None = option(
        f"Column of a query in a table. Default: one with a usual name: {', '.join(ANCHORS)}.",
        default=None,
    )
    pooling: str | None = option(
        "Pooling of the vectors. Default: that of the model, else mean.",
        default=None,
        choices=EMBEDDING_POOLINGS,
    )
    truncate_dim: int | None = option(
        "Compare the first numbers of the vectors only, for a model that was trained with "
        "--matryoshka_dims. Default: all.",
        default=None,
        min=1,
    )
    max_seq_length: int | None = option(
        "Longest input of --model_dir in tokens. Default: that of the model.", default=None
    )
    reranker: str | None = option(
        "Model of run_reranker, or another classifier of pairs with one score, that ranks the found "
        "documents anew. Default: none.",
        default=None,
    )
    depth: int = option("Documents of a query that --reranker gets.", default=50, min=1)
    top_k: int = option("Documents of a query in the answer.", default=10, min=1)
    output_file: str | None = option(
        "File for the answers, a JSON object per query. Default: standard output.", default=None
    )
    batch_size: int = option("Texts per batch of the models.", default=32, min=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._need("reranker", ("depth",))
        # A string would be taken for many texts of one letter.
        if self.query is not None and not (isinstance(self.query, list | tuple) and self.query):
            raise ValueError(f"query is {self.query!r}, but must be a list of one or more texts.")
        for text in self.query or ():
            if is_blank(text):
                raise ValueError(f"query is {text!r}, but must be a text that is not empty.")
        if self.query is not None and self.input_file:
            raise ValueError("Give either `query` or `input_file`.")
        if self.reranker and self.depth < self.top_k:
            raise ValueError(
                f"depth is {self.depth}, but must be top_k={self.top_k} or more. Raise `depth`, or "
                "lower top_k."
            )


def search(options: SearchOptions) -> None:
    """Write {"query", "documents": [{"text", "score", "file", "line"}]} for each query, the best first.

    The score is that of the reranker, else the cosine. Every document is compared. Documents that differ
    only in whitespace are one. A query of a file has `file` and `line` too. Other columns of a table are
    in `row`. Empty texts are skipped and counted.

    Raises:
        ValueError: there are no documents, a file cannot be read, or a model does not fit.
    """
    _check_table_flags(options)
    if options.output_file is not None:
        files = expand_files(options.documents)
        if options.input_file not in (None, STANDARD_INPUT):
            files += expand_files(options.input_file)
        check_not_an_input([options.output_file], files)
    documents, queries = _documents(options), _queries(options)
    logger.info("%d documents", len(documents))
    texts = [each["text"] for each in documents]
    with open_output(options.output_file) as output:  # fails before the long work
        model = Predictor(
            options.model_dir, batch_size=options.batch_size, max_seq_length=options.max_seq_length
        )
        reranker = _reranker(options)
        if options.truncate_dim is not None:
            width = model.encoder(options.pooling).width
            if options.truncate_dim > width:
                raise ValueError(
                    f"truncate_dim is {options.truncate_dim}, but the vectors have {width} numbers."
                )
        vectors = embed_all(model, texts, "documents", pooling=options.pooling)
        vectors = _truncated(vectors, options.truncate_dim)
        typed = options.query is None and options.input_file in (None, STANDARD_INPUT)
        typed = typed and sys.stdin.isatty()
        if typed:
            print("Type a query and Enter; end with Ctrl-D.", file=sys.stderr)
        while block := list(islice(queries, 1 if typed else _QUERIES)):
            asked_texts = [text for text, _ in block]
            asked = model.embed(asked_texts, options.pooling, as_query=True)
            asked = _truncated(asked, options.truncate_dim)
            most = options.depth if reranker else options.top_k
            scores, indexes = retrieval.search(asked, vectors, most)
            if reranker is not None:
                scores, indexes = _reranked(reranker, asked_texts, texts, indexes)
            for (query, origin), values, row in zip(block, scores, indexes, strict=True):
                best = list(zip(values, row, strict=True))[: options.top_k]
                found = [
                    {"text": texts[index], "score": float(score)} | documents[index]
                    for score, index in best
                ]
                line = {"query": query, **origin, "documents": found}
                output.write(json_line(line))
            output.flush()


def _truncated(vectors: np.ndarray, truncate_dim: int | None) -> np.ndarray:
    """Return unit vectors of the first numbers of vectors [N, E]."""
    return retrieval.unit(vectors[:, :truncate_dim])


def _check_table_flags(options: SearchOptions) -> None:
    """Raise ValueError for a flag of tables if no file is a table."""
    is_file = options.query is None and options.input_file not in (None, STANDARD_INPUT)
    queries = list(map(ending_of, expand_files(options.input_file or ""))) if is_file else []
    documents = list(map(ending_of, expand_files(options.documents)))
    options.need_table(["document_column"], documents, "documents")
    options.need_table(["query_column"], queries, "input_file")
    of_both = [each.name for each in fields(TableOptions)]
    options.need_table(of_both, documents + queries, "documents")


Text = tuple[str, dict[str, Any]]  # with its file, line and other columns


def _documents(options: SearchOptions) -> list[dict[str, Any]]:
    """Return the documents: text, file, line, and other columns of a table."""
    found: dict[str, dict[str, Any]] = {}
    count = 0
    for file in expand_files(options.documents):
        if ending_of(file) == "json":
            passages = dict.fromkeys(each.passage.text for each in read_squad(file))
            origins: Iterable[Text] = ((text, {}) for text in passages)
        else:
            origins = _texts(options, file, "document_column")
        for text, origin in origins:
            count += 1
            found.setdefault(" ".join(text.split()), {"text": text, "file": file, **origin})
    if count > len(found):
        logger.warning(
            "%d documents were left out, because they equal an earlier one except for whitespace",
            count - len(found),
        )
    if not found:
        raise ValueError(f"documents={options.documents} contains no text.")
    return list(found.values())


def _queries(options: SearchOptions) -> Iterator[Text]:
    """Return the queries. Files are read at once, so that their faults are found before the work."""
    if options.query is not None:
        return ((text, {}) for text in options.query)
    given = options.input_file or STANDARD_INPUT
    if given == STANDARD_INPUT:
        return _texts(options, given, "query_column")
    found = [
        (text, {"file": file, **origin})
        for file in expand_files(given)
        for text, origin in _queries_of(options, file)
    ]
    if not found:
        raise ValueError(f"input_file={given} contains no query.")
    return iter(found)


def _queries_of(options: SearchOptions, file: str) -> Iterator[Text]:
    if ending_of(file) == "json":
        return ((each.question_text, {"row": {"id": each.qas_id}}) for each in read_squad(file))
    return _texts(options, file, "query_column")


# Usual names of columns, in this order.
_COLUMNS = {
    "document_column": ("document", "passage", "positive", "text", "text_a", *POSITIVES),
    "query_column": ANCHORS,
}


def _texts(options: SearchOptions, file: str, flag: str) -> Iterator[Text]:
    """Yield the texts of a file, with line and other columns. Skip and count empty texts."""
    is_table = ending_of(file) in TABLE_FORMATS
    found = _texts_of_table(options, file, flag) if is_table else _texts_of_lines(file)
    count = 0
    for text, origin in found:
        if is_blank(text):
            count, line = count + 1, origin["line"]
        else:
            yield text.strip(), origin
    if count:
        logger.log(
            logging.WARNING if is_table else logging.INFO,
            "%s: %d rows without a text were skipped, the last in line %d",
            *(place_of(file), count, line),
        )


def _texts_of_lines(file: str) -> Iterator[Text]:
    for number, line in enumerate(read_texts(file), start=1):
        yield line, {"line": number}


def _texts_of_table(options: SearchOptions, file: str, flag: str) -> Iterator[Text]:
    rows = read_table(
        file,
        quoted=options.quoted,
        header=options.header,
        separator=options.column_separator,
    )
    for number, row in enumerate(rows):
        name = getattr(options, flag) or row.usual(_COLUMNS[flag])
        if name is None:
            raise ValueError(
                f"{row.place_of_names}: the columns are {listed(row)}, and none has the name "
                f"{' or '.join(dict.fromkeys(_COLUMNS[flag]))}. Name one with {flag}."
                f"{row.remedy_without_header}"
            )
        text = row.column(name, flag)
        text = "" if text is None else text  # pandas writes an empty cell as null
        if number == 0:
            logger.info("%s: %s in %r", file, flag.removesuffix("_column"), name)
        if not isinstance(text, str):
            raise ValueError(f"{row.place}: {name} is {text!r}, but must be a text.")
        others = {column: value for column, value in row.items() if column != name}
        yield text, {"line": row.line} | ({"row": others} if others else {})


def _reranker(options: SearchOptions) -> Predictor | None:
    """Return the reranker.

    Raises:
        ValueError: it has no score for a pair.
    """
    if not options.reranker:
        return None
    model = Predictor(options.reranker, batch_size=options.batch_size)
    ranks = model.text_model
    if not (
        isinstance(ranks, LabelModel)
        and ranks.problem_type == "regression"
        and ranks.is_pair is not False
    ):
        raise ValueError(
            f"reranker={options.reranker} has no score for a pair of texts. Use a model of "
            "run_reranker, or another classifier with one output."
        )
    return model


def _reranked(
    model: Predictor, queries: Sequence[str], texts: Sequence[str], indexes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of the reranker and the indexes [Q, k], the best first."""
    pairs = [
        (query, texts[index]) for query, row in zip(queries, indexes, strict=True) for index in row
    ]
    found = [answer["score"] for answer in model.predict(pairs)]
    scores = np.reshape(found, indexes.shape)
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.take_along_axis(scores, order, 1), np.take_along_axis(indexes, order, 1)
