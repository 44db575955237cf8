r"""Find hard negatives for run_embeddings: texts that a model takes for the positive.

    python run_scripts/mine_negatives.py \
        --model_dir=embeddings_output --input_file=questions.tsv --output_file=mined.jsonl \
        --num_negatives=3

Then train with --train_file=mined.jsonl. docs/embeddings.md has the details.
"""

from bert_tf import cli
from bert_tf.programs.mine_negatives import MiningOptions, mine_negatives

if __name__ == "__main__":
    cli.run(MiningOptions, mine_negatives)
