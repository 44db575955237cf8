"""Which devices a run gets for which flags."""

from types import SimpleNamespace

import pytest
import tensorflow as tf

from bert_tf.training import strategy
from bert_tf.training.strategy import describe, distribute, make_strategy, needs_static_shapes


def pretend(monkeypatch, num_gpus):
    """As if so many GPUs were visible; they are the two CPU devices under other names."""
    devices = {
        "CPU": ["/device:CPU:0", "/device:CPU:1"],
        "GPU": [f"/device:GPU:{i}" for i in range(num_gpus)],
    }
    made = {kind: [tf.config.LogicalDevice(n, kind) for n in devices[kind]] for kind in devices}
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: made[kind])
    monkeypatch.setattr(tf.distribute, "OneDeviceStrategy", lambda name: ("one_device", [name]))
    monkeypatch.setattr(strategy, "mirrored_strategy", lambda names: ("mirrored", names))


@pytest.mark.parametrize(
    "num_gpus, arguments, expected",
    [
        (0, {}, ("one_device", ["CPU:0"])),
        (0, {"name": "mirrored"}, ("mirrored", ["CPU:0", "CPU:1"])),
        (1, {}, ("one_device", ["GPU:0"])),
        (3, {}, ("mirrored", ["GPU:0", "GPU:1", "GPU:2"])),
        (3, {"name": "one_device"}, ("one_device", ["GPU:0"])),
        (1, {"name": "mirrored"}, ("mirrored", ["GPU:0"])),
    ],
)
def test_the_devices_follow_from_the_flags(monkeypatch, num_gpus, arguments, expected):
    pretend(monkeypatch, num_gpus)
    kind, devices = make_strategy(**arguments)
    assert (kind, [device.removeprefix("/device:") for device in devices]) == expected


def test_the_description_names_devices_and_the_batch_of_each():
    one, two = tf.distribute.OneDeviceStrategy("CPU:0"), make_two_replicas()
    assert describe(one, 6) == "OneDeviceStrategy on CPU:0; batch 6 = 1 x 6"
    assert describe(two, 6) == "MirroredStrategy on CPU:0, CPU:1; batch 6 = 2 x 3"
    assert describe(two, 7) == "MirroredStrategy on CPU:0, CPU:1; batch 7 = 2 x 3.5"


def test_shapes_may_vary_where_there_is_no_tpu():
    assert not needs_static_shapes(make_two_replicas())


def make_two_replicas():
    devices = tf.config.list_logical_devices("CPU")
    return strategy.mirrored_strategy(tuple(device.name for device in devices))


def test_two_runs_in_one_process_share_the_strategy_and_their_reductions_do_not_clash():
    assert make_two_replicas() is make_two_replicas()
    with pytest.raises(ValueError, match="other devices than CPU:7"):
        strategy.mirrored_strategy(("CPU:7",))

    @tf.function
    def total(values):
        def replica(values):
            return tf.distribute.get_replica_context().all_reduce("SUM", values * 1)

        return make_two_replicas().run(replica, args=(values,)).values[1]

    assert total(tf.constant(2.0)).numpy() == 4
    assert total(tf.constant([1.0, 2.0, 3.0])).numpy().tolist() == [2, 4, 6]


@pytest.mark.parametrize("device", ["CPU:0", "GPU:0"])  # nothing is computed on it
def test_one_device_reads_the_dataset_itself_without_a_thread_that_tunes_it(device):
    dataset = tf.data.Dataset.range(8).batch(4)
    read = distribute(tf.distribute.OneDeviceStrategy(device), dataset)
    assert isinstance(read, tf.data.Dataset)
    assert read.options().autotune.enabled is False
    assert [batch.tolist() for batch in read.as_numpy_iterator()] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_several_workers_share_each_batch_also_if_it_comes_from_files(tmp_path):
    """Else each reads other files, and a run that resumes skips examples that it has not seen."""
    files = [str(tmp_path / name) for name in "ab"]
    for file in files:
        with tf.io.TFRecordWriter(file) as writer:
            writer.write(b"1")
    dataset = tf.data.TFRecordDataset(files).batch(2)
    workers = SimpleNamespace(
        extended=SimpleNamespace(worker_devices=["/job:worker/replica:0/task:0/device:GPU:0"]),
        experimental_distribute_dataset=lambda dataset: dataset,
    )
    policy = distribute(workers, dataset).options().experimental_distribute.auto_shard_policy
    assert policy == tf.data.experimental.AutoShardPolicy.DATA


def test_several_devices_share_each_batch():
    mirrored = make_two_replicas()
    read = distribute(mirrored, tf.data.Dataset.range(8).batch(4))
    assert isinstance(read, tf.distribute.DistributedDataset)
    per_batch = [mirrored.experimental_local_results(each) for each in read]
    assert all(len(parts) == mirrored.num_replicas_in_sync for parts in per_batch)
    assert [value for parts in per_batch for part in parts for value in part.numpy()] == [*range(8)]
