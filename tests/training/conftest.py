"""Fixtures of the tests of training."""

import pytest
import tensorflow as tf


@pytest.fixture
def pretend(monkeypatch):
    """A function that gives this machine GPUs or a TPU, with which nothing can be computed."""

    def set_devices(capabilities=(), cuda=None, num_tpus=0):
        counts = {"CPU": 2, "GPU": len(capabilities), "TPU": num_tpus}
        logical = {
            kind: [tf.config.LogicalDevice(f"/device:{kind}:{i}", kind) for i in range(count)]
            for kind, count in counts.items()
        }
        built = {"cuda_version": cuda} if cuda else {}
        monkeypatch.setattr(tf.config, "list_logical_devices", logical.__getitem__)
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: list(capabilities))
        details = tf.config.experimental
        monkeypatch.setattr(details, "get_device_details", lambda c: {"compute_capability": c})
        monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: built)

    return set_devices
