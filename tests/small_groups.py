"""create_pretraining_data with small groups: small_groups.py BYTES --flag=value ..."""

import sys

if __name__ == "__main__":
    from bert_tf import cli
    from bert_tf.programs import create_pretraining_data as program

    program.MAX_GROUP_BYTES = int(sys.argv.pop(1))
    cli.run(program.PretrainingDataOptions, program.create_pretraining_data)
