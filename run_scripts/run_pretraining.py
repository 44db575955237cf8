r"""Pre-train BERT on the records of create_pretraining_data.

    python run_scripts/run_pretraining.py \
        --input_file='records/*.tf_record' --eval_file=held_out.tf_record \
        --bert_config_file=bert_config.json --output_dir=pretrained \
        --do_train --do_eval --train_batch_size=32 \
        --max_seq_length=128 --max_predictions_per_seq=20 \
        --num_train_steps=10000 --num_warmup_steps=1000 --learning_rate=1e-4

After an interruption, the same command resumes. Records of create_pretraining_data --masking=none get
new masks in each epoch. They need the vocabulary: --vocab_file, or a file next to the configuration.
"""

if __name__ == "__main__":
    from bert_tf import cli
    from bert_tf.pretraining.run_pretraining import PretrainingOptions, run_pretraining

    cli.run(PretrainingOptions, run_pretraining)
