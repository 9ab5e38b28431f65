"""Consumer groups: the classic protocol and committed offsets.

========================  ===================================================================
:mod:`.machine`           one group: events in, effects out. Its steps: :mod:`.joining`,
                          :mod:`.static_members`, :mod:`.rebalance`, :mod:`.syncing`,
                          :mod:`.sessions`, :mod:`.committing`, :mod:`.removal`
:mod:`.invariants`        checked after every event
:mod:`.group_manager`     the groups of this broker; loading and unloading
:mod:`.loading`           groups from the records of ``__consumer_offsets``
:mod:`.driver`            carries out effects: timers, appends, reads, the offsets topic
:mod:`.requests`          handlers' requests as events: the coordinator
:mod:`.interfaces`        the driver's view of the offsets topic
========================  ===================================================================

The driver and the requests have the clock and the log; all others are pure: time, fresh member ids
and results of appends are arguments. The rules are those of Kafka 3.9's coordinator of classic
groups; comments name each departure.
"""
