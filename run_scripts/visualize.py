r"""Write a page that explains a model's answer: attention heads, and the contribution of each token.

    python run_scripts/visualize.py --model_dir=mrpc_output --output_file=page.html \
        --text='The dog barked at the cat. ||| A cat was barked at.'

' ||| ' separates the sentences of a pair, a question and its text, a text and its choices.
"""

if __name__ == "__main__":
    from bert_tf import cli
    from bert_tf.prediction.visualize import VisualizationOptions, visualize

    cli.run(VisualizationOptions, visualize)
