"""Time and memory of a training step, compared with `transformers` (PyTorch) and keras-hub.

    pip install -e .[bench] keras-hub
    python benchmarks/training.py --size=base --batch_size=16 --max_seq_length=128
    python benchmarks/training.py --size=base --batch_size=4 --max_seq_length=512
    python benchmarks/training.py --size=base --batch_size=32 --max_seq_length=128 --task=classification

--peers adds the original and tf-models-official (tensorflow_peers.py documents that folder). Each side
has its own process and trains on the same random examples: pre-training (masked LM with 20 predictions
per example, and next sentence) or classification with the lengths of MRPC. Dropout 0.1, AdamW, gradients
clipped to norm 1. Each has a thread for each processor, and takes turns with ours, a few steps each, so
that other load affects both. Prints medians.

The ceiling is the speed of the bfloat16 product [4096, 768] x [768, 3072] in a TensorFlow graph, which
takes turns as another side. "of ceiling" is the fraction that a step's matrix products reach
(modeling/bert.py, real tokens only).
"""

import argparse
import math
import os
import platform
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from fine_tuning_runs import processors  # noqa: E402
from side_by_side import answer_turns, take_turns  # noqa: E402

SIZES = {
    "large": (24, 1024, 16),
    "base": (12, 768, 12),
    "minilm": (6, 384, 12),
    "medium": (8, 512, 8),
    "small": (4, 512, 8),
    "mini": (4, 256, 4),
    "tiny": (2, 128, 2),
}
VOCAB_SIZE, PREDICTIONS = 30522, 20
SIDES = (
    "bert_tf-bf16",
    "bert_tf-bf16-packed",
    "bert_tf-fp32",
    "torch-bf16-eager",
    "torch-bf16-compile",
    "torch-fp32-sdpa",
    "keras_hub-bf16",
    "keras_hub-fp32",
)
PEERS = ("original-bf16", "original-fp32", "tf_models-bf16", "tf_models-fp32")  # of --peers
CEILING, PRODUCT, PRODUCTS = "products-bf16", (4096, 768, 3072), 50


def make_batch(task: str, batch_size: int, length: int) -> dict[str, np.ndarray]:
    """Return random examples, the same on every side; for classification with MRPC's lengths."""
    rng = np.random.default_rng(0)
    lengths = np.full(batch_size, length)
    if task == "classification":  # MRPC with 30,522 WordPieces: mean 53, standard deviation 13
        lengths = np.clip(rng.normal(53, 13, batch_size).astype(int), 20, length)
    mask = (np.arange(length) < lengths[:, None]).astype("int32")
    batch = {
        "input_ids": rng.integers(1000, VOCAB_SIZE, mask.shape).astype("int32") * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(length) >= lengths[:, None] // 2).astype("int32") * mask,
    }
    if task == "classification":
        batch["label_ids"] = rng.integers(2, size=batch_size).astype("int32")
        batch["is_real_example"] = np.ones(batch_size, "int32")
        return batch
    positions = [np.sort(rng.choice(length, PREDICTIONS, replace=False)) for _ in range(batch_size)]
    batch["masked_lm_positions"] = np.stack(positions).astype("int32")
    batch["masked_lm_ids"] = rng.integers(1000, VOCAB_SIZE, (batch_size, PREDICTIONS)).astype(
        "int32"
    )
    batch["masked_lm_weights"] = np.ones((batch_size, PREDICTIONS), "float32")
    batch["next_sentence_labels"] = rng.integers(2, size=batch_size).astype("int32")
    return batch


# ------------------------------------------------------------------------------------- the sides


def config_of(size: str, **changes):
    """Return the `BertConfig` of one of `SIZES`, with other values of some fields."""
    from bert_tf.config import BertConfig

    layers, hidden, heads = SIZES[size]
    return BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        type_vocab_size=2,
        **changes,
    )


def bert_tf_step(side: str, arguments: argparse.Namespace):
    import tensorflow as tf

    from bert_tf.data.batching import PACKED_FEATURES, pack_batch
    from bert_tf.data.features import trim_padding
    from bert_tf.pretraining.task import PretrainingTask
    from bert_tf.tasks.classification import ClassificationTask
    from bert_tf.training.loop import TrainLoop
    from bert_tf.training.optimizers import AdamW
    from bert_tf.training.strategy import distribute, make_strategy

    length = arguments.max_seq_length
    if arguments.task == "classification":
        task = ClassificationTask(("0", "1"), length)
    else:
        task = PretrainingTask(length, PREDICTIONS)
    strategy = make_strategy()
    config = config_of(arguments.size)
    policy = "mixed_bfloat16" if "bf16" in side else "float32"
    with strategy.scope():
        model, optimizer = task.build_model(config, dtype=policy), AdamW(1e-4)
    trainer = TrainLoop(
        model,
        task.losses,
        strategy=strategy,
        input_names=(*task.input_names, *PACKED_FEATURES),
        optimizer=optimizer,
    )
    batch = make_batch(arguments.task, arguments.batch_size, length)
    batch = trim_padding({name: tf.constant(value) for name, value in batch.items()}, task.features)
    if side.endswith("packed"):
        batch = pack_batch(batch, length)
    dataset = tf.data.Dataset.from_tensors(batch).repeat()
    iterator = iter(distribute(strategy, dataset))
    return lambda count=1: trainer.take_steps(iterator, count).values["loss"]


def tensorflow_peer_step(side: str, arguments: argparse.Namespace):
    import tensorflow_peers

    sizes = config_of(arguments.size).to_dict()
    batch = make_batch(arguments.task, arguments.batch_size, arguments.max_seq_length)
    make = getattr(tensorflow_peers, f"{side.split('-')[0]}_step")
    return make(sizes, side.endswith("bf16"), batch, arguments.peers)


def products(side: str, arguments: argparse.Namespace):
    """Return a function that computes `PRODUCTS` matrix products in bfloat16."""
    import tensorflow as tf

    rows, inner, columns = PRODUCT
    left = tf.random.normal([rows, inner])
    right = tf.random.normal([inner, columns])
    left, right = (tf.cast(factor, tf.bfloat16) for factor in (left, right))

    @tf.function
    def multiply():
        total = 0.0
        for _ in range(PRODUCTS):
            # The dependency and the identity keep the products sequential and distinct.
            with tf.control_dependencies([tf.identity(total)]):
                total += tf.cast((left @ tf.identity(right))[0, 0], tf.float32)
        return total

    return lambda: float(multiply())


def torch_step(side: str, arguments: argparse.Namespace, device: str = "cpu"):
    import torch
    from transformers import BertConfig, BertForPreTraining, BertForSequenceClassification

    torch.manual_seed(0)
    torch.set_num_threads(processors())
    layers, hidden, heads = SIZES[arguments.size]
    attention = "eager" if "eager" in side else getattr(arguments, "attention", "sdpa")
    config = BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        attn_implementation=attention,
        attention_probs_dropout_prob=getattr(arguments, "attention_dropout", 0.1),
    )
    is_pretraining = arguments.task == "pretraining"
    model = (BertForPreTraining if is_pretraining else BertForSequenceClassification)(config)
    model.to(device).train()
    kernels = [p for n, p in model.named_parameters() if "bias" not in n and "LayerNorm" not in n]
    others = [p for n, p in model.named_parameters() if "bias" in n or "LayerNorm" in n]
    groups = [{"params": kernels}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, weight_decay=0.01, fused=True)
    numpy_batch = make_batch(arguments.task, arguments.batch_size, arguments.max_seq_length)
    longest = -(-int(numpy_batch["input_mask"].sum(1).max()) // 8) * 8  # like a data collator
    batch = {
        name: torch.tensor(
            value[:, :longest] if name.startswith(("input", "segment")) else value, device=device
        )
        for name, value in numpy_batch.items()
    }
    cross_entropy = torch.nn.functional.cross_entropy

    def loss_of():
        inputs = {
            "input_ids": batch["input_ids"].long(),
            "attention_mask": batch["input_mask"].long(),
            "token_type_ids": batch["segment_ids"].long(),
        }
        if not is_pretraining:
            return cross_entropy(model(**inputs).logits.float(), batch["label_ids"].long())
        outputs = model.bert(**inputs)
        positions = batch["masked_lm_positions"].long()
        rows = torch.arange(len(positions), device=device)[:, None]
        # The head computes only the masked positions, as in the original.
        words, pairs = model.cls(outputs.last_hidden_state[rows, positions], outputs.pooler_output)
        words = words.reshape(-1, VOCAB_SIZE).float()
        loss = cross_entropy(words, batch["masked_lm_ids"].long().reshape(-1))
        return loss + cross_entropy(pairs.float(), batch["next_sentence_labels"].long())

    if "compile" in side:
        loss_of = torch.compile(loss_of)

    def step():
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled="bf16" in side):
            loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def keras_hub_step(side: str, arguments: argparse.Namespace):
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    import keras_hub

    layers, hidden, heads = SIZES[arguments.size]
    policy = "mixed_bfloat16" if "bf16" in side else "float32"
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=VOCAB_SIZE,
        num_layers=layers,
        num_heads=heads,
        hidden_dim=hidden,
        intermediate_dim=4 * hidden,
        max_sequence_length=512,
        dtype=policy,
    )
    batch = make_batch(arguments.task, arguments.batch_size, arguments.max_seq_length)
    longest = -(-int(batch["input_mask"].sum(1).max()) // 8) * 8
    inputs = {
        "token_ids": batch["input_ids"][:, :longest],
        "padding_mask": batch["input_mask"][:, :longest],
        "segment_ids": batch["segment_ids"][:, :longest],
    }
    outputs = backbone(backbone.input)
    losses, targets = [], []
    if arguments.task == "classification":
        dropped = keras.layers.Dropout(0.1, dtype=policy)(outputs["pooled_output"])
        heads_out = [keras.layers.Dense(2, dtype="float32")(dropped)]
        targets = [batch["label_ids"]]
        model_inputs = backbone.input
    else:
        positions = keras.Input((PREDICTIONS,), dtype="int32", name="positions")
        words = keras_hub.layers.MaskedLMHead(
            token_embedding=backbone.token_embedding,
            intermediate_activation=lambda x: keras.activations.gelu(x, approximate=True),
            dtype=policy,
        )(outputs["sequence_output"], mask_positions=positions)
        words = keras.layers.Activation("linear", dtype="float32")(words)
        pairs = keras.layers.Dense(2, dtype="float32")(outputs["pooled_output"])
        heads_out = [words, pairs]
        targets = [batch["masked_lm_ids"], batch["next_sentence_labels"]]
        model_inputs = {**backbone.input, "positions": positions}
        inputs["positions"] = batch["masked_lm_positions"]
    model = keras.Model(model_inputs, heads_out)
    losses = [keras.losses.SparseCategoricalCrossentropy(from_logits=True) for _ in heads_out]
    optimizer = keras.optimizers.AdamW(1e-4, weight_decay=0.01, global_clipnorm=1.0)
    model.compile(optimizer, losses, jit_compile=False)  # with it, bfloat16 is twice as slow here
    targets = targets[0] if len(targets) == 1 else targets

    def step():
        values = model.train_on_batch(inputs, targets)
        return float(values[0] if isinstance(values, (list, tuple)) else values)

    return step


def flops_of_step(arguments: argparse.Namespace) -> float:
    """Return the FLOPs of the matrix products of a step, for real tokens only."""
    from bert_tf.modeling.bert import flops_per_token

    lengths = make_batch(arguments.task, arguments.batch_size, arguments.max_seq_length)[
        "input_mask"
    ].sum(1)
    predictions = PREDICTIONS if arguments.task == "pretraining" else 0
    config = config_of(arguments.size)
    return sum(n * flops_per_token(config, int(n), predictions / n) for n in lengths)


def work(side: str, arguments: argparse.Namespace) -> None:
    make = {
        "bert_tf": bert_tf_step,
        "torch": torch_step,
        "keras_hub": keras_hub_step,
        "products": products,
    }
    step = make.get(side.split("-")[0], tensorflow_peer_step)(side, arguments)
    loss = step()
    step()
    answer_turns(step, float(loss))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--task", choices=("pretraining", "classification"), default="pretraining")
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="per round and side")
    parser.add_argument("--sides", default="", help="comma list; default: all that fit the task")
    parser.add_argument("--peers", help="folder with the original and tf-models")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker, arguments)
        return
    sides = arguments.sides.split(",") if arguments.sides else list(SIDES)
    if arguments.task == "pretraining" and not arguments.sides:
        sides.remove("bert_tf-bf16-packed")  # its examples are already full
        sides += PEERS if arguments.peers else ()
    if set(sides) & set(PEERS) and not (arguments.peers and arguments.task == "pretraining"):
        parser.error("the original and tf-models need --peers, and --task=pretraining.")
    results = take_turns([*sides, CEILING], arguments.rounds, arguments.steps)
    flops_of_products = 2 * math.prod(PRODUCT) * PRODUCTS
    ceilings = [flops_of_products / turn.median for turn in results if turn.side == CEILING]
    ceiling = ceilings[0] if ceilings else math.nan  # that side failed
    results = [turn for turn in results if turn.side != CEILING]
    needed = flops_of_step(arguments)
    print(
        f"{platform.machine()}, {processors()} processors; {arguments.task} {arguments.size}, "
        f"{arguments.batch_size} x {arguments.max_seq_length}; products {ceiling / 1e9:.0f} GFLOP/s"
    )
    columns = ("ms/step", "times ours", "of ceiling", "peak GB", "first loss")
    print(f"{'':24}" + "".join(f"{column:>12}" for column in columns))
    for turn in sorted(results, key=lambda turn: turn.median):
        print(
            f"{turn.side:24}{1000 * turn.median:12.0f}{turn.ratio:12.2f}"
            f"{needed / turn.median / ceiling:12.0%}{turn.peak_gb:12.1f}{turn.first:12.3f}"
        )


if __name__ == "__main__":
    main()
