"""What has left a party, after a power cut: what was synced is sent again as it was, the rest is made again."""

import numpy as np
import pytest

from fdml.privacy.build_guard import guard_for
from fdml.privacy.noise import NoiseKey
from fdml.privacy.pairwise_masks import PairwiseMasks
from fdml.protocol.schedule import schedule_for
from fdml.protocol.wire import encode_from_party
from fdml.settings import GuardSettings
from tests.storage.memory_disk import MemoryDisk

KEY = NoiseKey(bytes(range(32)))
SCHEDULE = schedule_for(24, 2, 4, 2, 5, 7)
PARTIES = ("store", "browser")
NOISY = GuardSettings(clip=2.0, noise="gaussian", sigma=1.0)
PREDICTIONS = np.linspace(-1.0, 1.0, 8)[:, None]


class CuttableDisk(MemoryDisk):
    """Knows what is on the disk itself: a power cut takes what was appended since and not synced."""

    def __init__(self):
        super().__init__()
        self.durable = {}

    def replace(self, name, content):
        super().replace(name, content)
        self.durable[name] = self.files[name]

    def append(self, name, content, *, synced=True):
        super().append(name, content, synced=synced)
        if synced:
            self.durable[name] = self.files[name]

    def after_a_power_cut(self):
        return MemoryDisk(self.durable)


def guard(disk, settings, *, blind):
    masks = PairwiseMasks(PARTIES, "store", pair_keys={"browser": b"p" * 32}, total_key=b"t" * 32) if blind else None
    made = guard_for(settings, SCHEDULE, KEY, blind=blind, pairwise=masks, disk=disk)
    made.restore(None, lambda step: SCHEDULE.visit(step).block)
    return made


def pushes(made, predictions, steps=range(5)):
    return [encode_from_party(made.push(step, SCHEDULE.visit(step).block, predictions)[0]) for step in steps]


@pytest.mark.parametrize("blind", [False, True])
def test_under_noise_what_left_leaves_again_as_it_was_after_a_power_cut(blind):
    disk = CuttableDisk()
    first = pushes(guard(disk, NOISY, blind=blind), PREDICTIONS)
    again = pushes(guard(disk.after_a_power_cut(), NOISY, blind=blind), PREDICTIONS + 0.3)
    assert again == first, "also where the party would predict something else now"


def test_without_noise_what_a_power_cut_takes_is_made_again_to_the_same_bits():
    disk = CuttableDisk()
    first = pushes(guard(disk, GuardSettings(), blind=True), PREDICTIONS)
    again = guard(disk.after_a_power_cut(), GuardSettings(), blind=True)
    assert pushes(again, PREDICTIONS) == first
    killed = guard(disk.copy(), GuardSettings(), blind=True)
    assert pushes(killed, PREDICTIONS + 0.3) == first, "a process that is killed loses nothing"
