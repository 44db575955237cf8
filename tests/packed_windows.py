"""Windows of long texts, packed one by one, to compare with those in bulk and in graphs."""

from bert_tf.data.packing import pack, window_pairs


def pack_windows(ids_a, ids_b=None, *, max_seq_length, doc_stride, cls_id, sep_id):
    """`pack` of each of `window_pairs`."""
    pairs = window_pairs(ids_a, ids_b or (), max_seq_length, doc_stride)
    return [
        pack(*pair, max_seq_length=max_seq_length, cls_id=cls_id, sep_id=sep_id) for pair in pairs
    ]
