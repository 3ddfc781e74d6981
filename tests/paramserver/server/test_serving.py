"""What the native server is told, and when."""

from paramserver.epoch import Epoch
from paramserver.server.serving import EpochServing
from tests.paramserver.store.making import VERSION, Clock, delta_of, serving


class Native:
    """Notes what it is told, and what the table held then."""

    def __init__(self, table) -> None:
        self.table, self.published, self.retired = table, [], []

    def publish(self, number, _tables):
        self.published.append(number)

    def retire(self, number):
        self.retired.append((number, [held for held, _ in self.table.epochs()]))


def test_an_epoch_is_taken_back_before_its_tables_let_it_go(tmp_path):
    clock = Clock()
    with serving(tmp_path / "store", clock=clock, hold_s=10.0) as store:
        store.publish(Epoch(1, VERSION, {"item": 0}))
        native = Native(store.tables(VERSION)["item"])
        served = EpochServing(store, native, lambda _table: False)
        assert served.sync() == [1]
        store.stage(delta_of(1))
        clock.now += 60
        # The store lets epoch 1 go as it publishes this one, without being asked to.
        store.publish(Epoch(2, VERSION, {"item": 1}))
        assert native.retired == [(1, [1, 2])]
        assert store.tables(VERSION)["item"].epochs() == [(2, 1)]
        assert served.sync() == [2] and native.published == [1, 2] and len(native.retired) == 1
        assert served.newest() == Epoch(2, VERSION, {"item": 1})
