"""Which devices a run gets for which flags, and the precision for them."""

from types import SimpleNamespace

import tensorflow as tf
from tiny_training import TWO, strategy_on

from bert_tf.training import strategy
from bert_tf.training.strategy import (
    choose_precision,
    distribute,
    gpu_compiler_problem,
    make_strategy,
    precision_for_cpu,
)


def test_the_devices_follow_from_the_flags(pretend):
    two = strategy_on(TWO)
    for num_gpus, name, expected in (
        (0, "auto", ["CPU:0"]),
        (0, "mirrored", ["CPU:0", "CPU:1"]),
        (1, "auto", ["GPU:0"]),
        (3, "one_device", ["GPU:0"]),
    ):
        pretend([(9, 0)] * num_gpus)
        made = make_strategy(name)
        assert isinstance(made, type(two)) is (name == "mirrored")
        assert [d.rpartition("device:")[2] for d in made.extended.worker_devices] == expected


def test_two_runs_in_one_process_share_the_strategy_and_their_reductions_do_not_clash():
    two = strategy_on(TWO)
    assert strategy_on(TWO) is two

    @tf.function
    def total(values):
        def replica(values):
            return tf.distribute.get_replica_context().all_reduce("SUM", values * 1)

        return two.run(replica, args=(values,)).values[1]

    assert total(tf.constant(2.0)).numpy() == 4
    assert total(tf.constant([1.0, 2.0, 3.0])).numpy().tolist() == [2, 4, 6]


def test_several_workers_share_each_batch_also_if_it_comes_from_files(tmp_path):
    """Else each reads other files, and a run that resumes skips examples that it has not seen."""
    for name in "ab":
        with tf.io.TFRecordWriter(str(tmp_path / name)) as writer:
            writer.write(b"1")
    dataset = tf.data.TFRecordDataset([str(tmp_path / name) for name in "ab"]).batch(2)
    workers = SimpleNamespace(experimental_distribute_dataset=lambda dataset: dataset)
    policy = distribute(workers, dataset).options().experimental_distribute.auto_shard_policy
    assert policy == tf.data.experimental.AutoShardPolicy.DATA


# ---- --precision=auto and XLA -------------------------------------------------------------------


def test_precision_for_cpu_follows_from_its_flags(tmp_path, monkeypatch):
    file = tmp_path / "cpuinfo"
    monkeypatch.setattr(strategy, "CPU_INFO", file)
    assert precision_for_cpu() == "float32"  # a system that does not name its instructions
    for flags, precision in {
        "fpu sse4_2 amx_bf16": "mixed_bfloat16",
        "fpu avx512_bf16": "mixed_bfloat16",
        "fpu avx512f avx512_bf16x": "float32",
    }.items():
        file.write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: amx_bf16\n")
        assert precision_for_cpu() == precision, flags


def test_choose_precision_is_bfloat16_on_tpus_and_where_the_oldest_gpu_has_it(pretend):
    choose = choose_precision.__wrapped__  # what it says is kept otherwise
    for capabilities, num_tpus, precision in (
        ([(9, 0), (7, 5)], 0, "float32"),
        ([(9, 0), (8, 0)], 0, "mixed_bfloat16"),
        ([], 1, "mixed_bfloat16"),
        ([], 0, precision_for_cpu()),
    ):
        pretend(capabilities, num_tpus=num_tpus)
        assert choose() == precision, capabilities


def test_gpu_compiler_problem_is_a_gpu_that_is_newer_than_xla(pretend):
    for capability, cuda, is_known in (
        ((9, 0), "12.5.1", True),
        ((12, 0), "12.5.1", False),
        ((12, 0), "12.9.1", True),
        ((10, 0), "12.5.1", False),
        ((12, 0), None, True),  # TensorFlow without CUDA
    ):
        pretend([capability], cuda)
        assert (gpu_compiler_problem() is None) is is_known, (capability, cuda)
