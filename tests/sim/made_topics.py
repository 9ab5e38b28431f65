"""Topics without records that an administrator creates and deletes: whether they are as they should
be in the end."""

from __future__ import annotations

from pyrklog.metastore import znodes
from pyrklog.metastore.znodes import TopicAssignment
from tests.sim.cluster import BrokerLife, Cluster

NAMES = ("made-0", "made-1")


def unsettled(cluster: Cluster) -> str | None:
    """Why these topics are not as they should be; None where they are."""
    marked = cluster.zookeeper.tree.children(znodes.DELETE_TOPICS)
    if marked:
        return f"{marked} are to be deleted"
    for name in NAMES:
        path = znodes.topic_path(name)
        entry = cluster.zookeeper.tree.get(path)
        if entry is None:
            wrong = next((f"{name} is deleted, and {w}" for w in _left(cluster, name)), None)
        else:
            wrong = _not_served(cluster, name, znodes.decode_topic(path, entry.node.data))
        if wrong is not None:
            return wrong
    return _misnamed(cluster)


def _misnamed(cluster: Cluster) -> str | None:
    """Clients are told of ZooKeeper's topics, and of no others."""
    names = set(cluster.zookeeper.tree.children(znodes.BROKER_TOPICS))
    for life in cluster.live():
        told = set(life.metadata.image.topics) if life.metadata is not None else set()
        if told != names:
            return f"{life.process.name} tells of {sorted(told)}, and there are {sorted(names)}"
    return None


def _left(cluster: Cluster, name: str, replicas: tuple[int, ...] = ()) -> list[str]:
    """Brokers that have what they should not have."""
    found = []
    for life in cluster.live():
        if life.broker.id not in replicas:
            view = life.sim.partition(name, 0)
            if view is not None:
                found.append(f"{life.process.name} holds it: {view}")
            elif life.broker.has_log(name, 0):
                found.append(f"{life.process.name} has its log")
    return found


def _not_served(cluster: Cluster, name: str, topic: TopicAssignment) -> str | None:
    replicas = topic.replicas[0]
    path = znodes.state_path(name, 0)
    entry = cluster.zookeeper.tree.get(path)
    if entry is None:
        return f"{name} has no leader"
    state = znodes.decode_state(path, entry.node.data)
    if state.leader < 0 or set(state.isr) != set(replicas):
        return f"{name} on {replicas} is led so: {state}"
    for life in cluster.live():
        if life.broker.id in replicas and not _is_as_told(life, name, state):
            return f"{life.process.name} has {name} as {life.sim.partition(name, 0)}, not {state}"
    left = _left(cluster, name, replicas)
    return f"{name} is on {replicas}, and {left[0]}" if left else None


def _is_as_told(life: BrokerLife, name: str, state: znodes.Leadership) -> bool:
    view = life.sim.partition(name, 0)
    role = "Leader" if state.leader == life.broker.id else "Follower"
    return view is not None and view[:2] == (role, state.leader_epoch)
