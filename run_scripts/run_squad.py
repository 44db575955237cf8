r"""Fine-tune on SQuAD 1.1 or 2.0, answer the questions of a file, and score the answers.

    python run_scripts/run_squad.py \
        --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt \
        --do_train --train_file=train-v1.1.json --do_predict --predict_file=dev-v1.1.json \
        --train_batch_size=12 --learning_rate=3e-5 --num_train_epochs=2.0 \
        --max_seq_length=384 --doc_stride=128 --output_dir=squad_output

SQuAD 2.0, with questions without answers and a search for their best threshold:

    python run_scripts/run_squad.py ... --version_2_with_negative --null_score_diff_threshold=-1.5

--bert_config_file and --vocab_file default to the files in the checkpoint's folder. After an
interruption, the same command resumes. After training, --do_predict needs only the data and
--output_dir. To continue an earlier run with its head, name its folder in --init_checkpoint.
"""

if __name__ == "__main__":
    from bert_tf import cli
    from bert_tf.tasks.run_squad import SquadOptions, run_squad

    cli.run(SquadOptions, run_squad)
