"""Consumer groups: the classic protocol and committed offsets.

========================  =========================================================================
:mod:`.machine`           one group: events in, effects out. Its steps: :mod:`.joining`,
                          :mod:`.static_members`, :mod:`.rebalance`, :mod:`.syncing`,
                          :mod:`.sessions`, :mod:`.committing`, :mod:`.removal`
:mod:`.invariants`        what holds for a group after every event
:mod:`.group_manager`     the groups that this broker coordinates; loading and unloading
:mod:`.loading`           from the records of ``__consumer_offsets`` to groups
:mod:`.driver`            carries out effects: timers, appends, reads, the offsets topic
:mod:`.interfaces`        what the driver needs of the rest of the broker
========================  =========================================================================

Everything but the driver is pure: time, fresh member ids and the results of appends are arguments.
The rules are those of Kafka 3.9's coordinator of classic groups; comments name each departure.
"""
