r"""Fine-tune, evaluate and predict multiple choice: SWAG, or your own JSON lines.

    python run_scripts/run_swag.py \
        --train_file=swag/train.csv --eval_file=swag/val.csv --predict_file=swag/test.csv \
        --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt \
        --do_train --do_eval --do_predict \
        --max_seq_length=128 --train_batch_size=16 --learning_rate=2e-5 --num_train_epochs=3.0 \
        --output_dir=swag_output

These are the settings of the paper. Your own lines are

    {"text_a": "...", "choices": ["...", "..."], "label": 0}

The number of choices may vary. docs/multiple_choice.md has the details.
"""

if __name__ == "__main__":
    from bert_tf import cli
    from bert_tf.tasks.run_swag import SwagOptions, run_swag

    cli.run(SwagOptions, run_swag)
