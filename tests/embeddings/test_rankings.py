"""Sections of report.html for embeddings and rerankers."""

import numpy as np
from pages import cells

from bert_tf.embeddings.rankings import Ranking, pair_sections, query_sections


def test_hardest_query_finds_its_document_last():
    queries, documents = ["q0", "q1", "q2", "q3"], ["d0", "d1", "d2", "d3"]
    found = np.array([[0, 1, 2], [2, 1, 0], [0, 2, 1], [0, 1, 2]])
    ranking = Ranking.from_lists(queries, documents, found, found, [[0], [0, 3], [2, 2], [3]])
    (section,) = query_sections(ranking)
    expected = [["q3", "d3", "d0", "beyond 3"], ["q1", "d0", "d2", "3"], ["q2", "d2", "d0", "2"]]
    assert cells(section) == expected


def test_hardest_pair_has_another_place_by_its_score():
    pairs = [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]
    found, scores = np.array([0.9, 0.2, 0.3, 0.95]), np.array([0.0, 0.25, 0.5, 1.0])
    (section,) = pair_sections(pairs, found, scores)
    assert cells(section)[0] == ["a", "b", "0", "0.900"]
    assert {tuple(row[:2]) for row in cells(section)} == set(pairs[:3])
    (section,) = pair_sections(pairs, scores, scores)
    assert section.parts[0]["kind"] == "paragraph"  # no errors
