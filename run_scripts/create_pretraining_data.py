r"""Make TFRecords for pre-training from text: one sentence per line, a blank line between documents.

    python run_scripts/create_pretraining_data.py \
        --input_file='corpus/*.txt' --output_file=records/train.tf_record \
        --vocab_file=vocab.txt --do_lower_case=True \
        --max_seq_length=128 --max_predictions_per_seq=20 \
        --masked_lm_prob=0.15 --random_seed=12345 --dupe_factor=5
"""

if __name__ == "__main__":
    from bert_tf import cli
    from bert_tf.pretraining.create_pretraining_data import (
        PretrainingDataOptions,
        create_pretraining_data,
    )

    cli.run(PretrainingDataOptions, create_pretraining_data)
