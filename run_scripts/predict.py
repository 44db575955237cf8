r"""Answer lines of text with JSON lines.

The label of each line, from a SavedModel (a tab separates the sentences of a pair):

    echo 'A sentence.' | python run_scripts/predict.py --model_dir=served/my_model/1

What may stand in the place of [MASK], from a pre-trained model:

    echo 'The dog [MASK] at the cat.' | python run_scripts/predict.py --model_dir=pretrained

The answer to a question, a tab before the text that has it, from a model of run_squad:

    printf 'Who won?\tDenver beat Carolina.\n' | python run_scripts/predict.py --model_dir=squad_output

A line that cannot be answered gets {"text": ..., "error": why}; the others are answered all the same.
"""

from bert_tf import cli
from bert_tf.workflows.prediction import PredictionOptions, predict

if __name__ == "__main__":
    cli.run(PredictionOptions, predict)
