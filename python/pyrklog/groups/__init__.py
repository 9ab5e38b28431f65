"""Consumer groups: the classic protocol and committed offsets.

========================  =========================================================================
:mod:`.machine`           one group: events in, effects out. Its steps: :mod:`.joining`,
                          :mod:`.static_members`, :mod:`.rebalance`, :mod:`.syncing`,
                          :mod:`.sessions`, :mod:`.committing`
:mod:`.manager`          which groups this broker coordinates; loading and unloading
:mod:`.loading`           from the records of ``__consumer_offsets`` to groups
:mod:`.driver`            the only one that waits: timers, appends, reads, the offsets topic
:mod:`.interfaces`        what the driver needs of the rest of the broker
========================  =========================================================================

Everything but the driver is pure: time, fresh member ids and the results of appends are arguments.
Rules are those of Kafka 3.9's coordinator of classic groups; where this one departs from it, the
place says so.
"""
