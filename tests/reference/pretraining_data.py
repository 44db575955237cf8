"""The algorithm of google-research/bert's create_pretraining_data.py, stated once more, plainly.

Token strings in lists, one `random.Random`, one draw at a time: slow and easy to check against the
description of the algorithm. It is the oracle of the tests and the yardstick of the benchmark, and
must not import `bert_tf`.

Tokenization is handed in as a function, because its rules have an oracle of their own;
`tokenize_words` is enough for plain lower-case words.

The algorithm, as our notes on the reference (commit eedf571) have it:
  - Lines are stripped; an empty one ends a document, the end of a file does not. Sentences without
    tokens and documents without sentences are dropped. Documents are shuffled once.
  - For each copy, for each document: a target length (S - 3, or with short_seq_prob anything from
    2 to that), chunks of sentences that reach it, a random cut into A and B, a random B for half of
    the chunks and for all of one sentence, whose unused sentences are put back.
  - Pairs that are too long lose tokens from the front or the back of the longer sentence.
  - Masks follow at once. At the end all instances are shuffled and dealt out to the files in turn.
"""

import collections
import io
import random

Instance = collections.namedtuple(
    "Instance", "tokens segment_ids masked_lm_positions masked_lm_labels is_random_next"
)


def tokenize_words(text, vocab):
    """Greedy longest-match WordPiece of words between spaces."""
    pieces = []
    for word in text.split():
        start, found = 0, []
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in vocab:
                    found.append(piece)
                    start = end
                    break
            else:
                found = ["[UNK]"]
                break
        pieces.extend(found)
    return pieces


def create_instances(
    texts,
    tokenize,
    vocab,
    *,
    random_seed,
    dupe_factor,
    max_seq_length,
    short_seq_prob,
    masked_lm_prob,
    max_predictions_per_seq,
    do_whole_word_mask,
):
    """All instances in the order in which they are written.

    texts: contents of the input files, in order. tokenize: line -> list of token strings.
    vocab: token -> id, in file order.
    """
    rng = random.Random(random_seed)
    documents = read_documents(texts, tokenize)
    rng.shuffle(documents)
    words = list(vocab)
    instances = []
    for _ in range(dupe_factor):
        for number in range(len(documents)):
            for tokens_a, tokens_b, is_random_next in cut_document(
                documents, number, max_seq_length, short_seq_prob, rng
            ):
                tokens = ["[CLS]", *tokens_a, "[SEP]", *tokens_b, "[SEP]"]
                segment_ids = [0] * (2 + len(tokens_a)) + [1] * (1 + len(tokens_b))
                seen, positions, labels = mask(
                    tokens, words, masked_lm_prob, max_predictions_per_seq, do_whole_word_mask, rng
                )
                instances.append(Instance(seen, segment_ids, positions, labels, is_random_next))
    rng.shuffle(instances)
    return instances


def read_documents(texts, tokenize):
    documents = [[]]
    for text in texts:
        # TensorFlow's line reader, which the reference uses, leaves out every carriage return.
        for line in io.StringIO(text.replace("\r", ""), newline="\n"):
            line = line.strip()
            if line == "":
                documents.append([])
            else:
                documents[-1].append(tokenize(line))
    documents = [[sentence for sentence in document if sentence] for document in documents]
    return [document for document in documents if document]


def cut_document(documents, number, max_seq_length, short_seq_prob, rng):
    """Yields (tokens_a, tokens_b, is_random_next) as lists of their own."""
    document = documents[number]
    longest = max_seq_length - 3
    target = longest
    if rng.random() < short_seq_prob:
        target = rng.randint(2, longest)

    chunk = []
    position = 0
    while position < len(document):
        chunk.append(document[position])
        full = sum(len(sentence) for sentence in chunk) >= target
        if full or position == len(document) - 1:
            cut = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
            tokens_a = [token for sentence in chunk[:cut] for token in sentence]
            if len(chunk) == 1 or rng.random() < 0.5:
                is_random_next = True
                tokens_b = random_sentences(documents, number, target - len(tokens_a), rng)
                position -= len(chunk) - cut
            else:
                is_random_next = False
                tokens_b = [token for sentence in chunk[cut:] for token in sentence]
            shorten(tokens_a, tokens_b, longest, rng)
            yield tokens_a, tokens_b, is_random_next
            chunk = []
        position += 1


def random_sentences(documents, number, wanted, rng):
    for _ in range(10):
        other = rng.randint(0, len(documents) - 1)
        if other != number:
            break
    start = rng.randint(0, len(documents[other]) - 1)
    tokens = []
    for sentence in documents[other][start:]:
        tokens.extend(sentence)
        if len(tokens) >= wanted:
            break
    return tokens


def shorten(tokens_a, tokens_b, longest, rng):
    while len(tokens_a) + len(tokens_b) > longest:
        longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
        if rng.random() < 0.5:
            del longer[0]
        else:
            del longer[-1]


def mask(tokens, words, masked_lm_prob, max_predictions_per_seq, do_whole_word_mask, rng):
    """Tokens with masks, positions in ascending order, original tokens at these positions."""
    candidates = []
    for position, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if do_whole_word_mask and candidates and token.startswith("##"):
            candidates[-1].append(position)
        else:
            candidates.append([position])
    rng.shuffle(candidates)

    limit = min(max_predictions_per_seq, max(1, round(len(tokens) * masked_lm_prob)))
    seen = list(tokens)
    predictions = {}
    for positions in candidates:
        if len(predictions) >= limit:
            break
        if len(predictions) + len(positions) > limit:
            continue
        for position in positions:
            if rng.random() < 0.8:
                seen[position] = "[MASK]"
            elif rng.random() < 0.5:
                seen[position] = tokens[position]
            else:
                seen[position] = words[rng.randint(0, len(words) - 1)]
            predictions[position] = tokens[position]
    ordered = sorted(predictions)
    return seen, ordered, [predictions[position] for position in ordered]


def to_record(instance, vocab, max_seq_length, max_predictions_per_seq):
    """Feature name -> list of numbers, padded with 0."""
    length, predictions = len(instance.tokens), len(instance.masked_lm_labels)
    padding = [0] * (max_seq_length - length)
    unused = [0] * (max_predictions_per_seq - predictions)
    return {
        "input_ids": [vocab[token] for token in instance.tokens] + padding,
        "input_mask": [1] * length + padding,
        "segment_ids": instance.segment_ids + padding,
        "masked_lm_positions": instance.masked_lm_positions + unused,
        "masked_lm_ids": [vocab[token] for token in instance.masked_lm_labels] + unused,
        "masked_lm_weights": [1.0] * predictions + [0.0] * len(unused),
        "next_sentence_labels": [1 if instance.is_random_next else 0],
    }


def deal_out(records, num_files):
    """The records of each file: one each in turn."""
    return [records[first::num_files] for first in range(num_files)]
