r"""The whole way once, in a few minutes on two cores: from raw text to a served model.

    make quickstart        # or: python run_scripts/quickstart.py --output_dir=quickstart_output

It needs no data: its corpus are the documentation strings of the Python packages that are installed.
"""

from bert_tf import cli
from bert_tf.programs.quickstart import QuickstartOptions, quickstart

if __name__ == "__main__":
    cli.run(QuickstartOptions, quickstart)
