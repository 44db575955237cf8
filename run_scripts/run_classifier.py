r"""Fine-tune, evaluate and predict: one label for a sentence or a pair of sentences.

    python run_scripts/run_classifier.py \
        --task_name=MRPC --data_dir=glue/MRPC \
        --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt \
        --do_train --do_eval --do_predict \
        --max_seq_length=128 --train_batch_size=32 --learning_rate=2e-5 --num_train_epochs=3.0 \
        --output_dir=mrpc_output

With a table of your own (.tsv, .csv or .jsonl):

    python run_scripts/run_classifier.py \
        --train_file=train.tsv --eval_file=dev.tsv --text_a_column=sentence --label_column=label \
        --init_checkpoint=uncased_L-12_H-768_A-12 --do_train --do_eval --output_dir=my_output

--bert_config_file and --vocab_file default to the files in the checkpoint's folder. After an
interruption, the same command resumes. After training, --do_eval and --do_predict need only the data and
--output_dir.
"""

if __name__ == "__main__":
    from bert_tf import cli
    from bert_tf.tasks.run_classifier import ClassifierOptions, run_classifier

    cli.run(ClassifierOptions, run_classifier)
