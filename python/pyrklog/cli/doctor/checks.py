"""The doctor's checks: from evidence to findings. Pure.

Each looks at one of the mistakes that keep a cluster from working. Findings of ``cluster health``
are sorted to the check that they belong to; the last check has all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyrklog.base.clock_reading import OWN
from pyrklog.base.internal_topics import is_internal
from pyrklog.cli.cluster_clients import merged
from pyrklog.cli.doctor.evidence import BrokerEvidence, Dialled, Evidence, LocalDir, Reached
from pyrklog.cli.failures import counted
from pyrklog.observability.health_rules import (
    ADVERTISED_FIX,
    SEVERITIES,
    ClusterState,
    Reason,
    Severity,
    examine,
    is_healthy,
    span,
    told_of,
    worst_first,
)
from pyrklog.observability.health_signs import (
    CLOCK_FIX,
    CLOCK_SKEW_WARN_MS,
    DISK_USED_WARN_PERCENT,
    FILES_FEW_PERCENT,
    FILES_FIX,
    FILES_WARN_PERCENT,
    size,
)

OK, UNKNOWN = "ok", "unknown"
CLIENTS_SHOWN_MAX = 10
LARGEST_TOPICS = 3
DIRECTORIES_SHOWN_MAX = 5
TOPICS_SMALL_PERCENT = 10
"""Of what is used on the volumes: below it, something else has filled them."""
_OF_KINDS = {
    "advertised": ("advertised", "silent"),
    "disk": ("log_dir_full", "log_dir_failed", "disk_filling", "disk_hangs"),
    "files": ("file_handles",),
    "memory": ("cache_small", "cache_thrashing"),
    "clock": ("clock_skew",),
    "zookeeper": ("zookeeper_unreached", "zookeeper_lost"),
}
_ELSEWHERE = {kind for kinds in _OF_KINDS.values() for kind in kinds}
_LOOPBACK = ("localhost", "127.", "::1", "0.0.0.0", "::", "[::")
NOT_OURS = "unknown against this broker: only pyrklog's tell"
NOBODY = "no broker was reached"


@dataclass(frozen=True)
class Check:
    """``well``: the sentence if nothing was found; ``unknown``: the one if that could not be
    looked at."""

    name: str
    findings: Sequence[Reason] = ()
    well: str = ""
    unknown: str | None = None

    @property
    def status(self) -> str:
        """``ok``, ``unknown``, or the severity of the worst finding."""
        found = {one.severity for one in self.findings}
        worst = next((one for one in SEVERITIES if one in found), None)
        return worst or (OK if self.unknown is None else UNKNOWN)

    @property
    def what(self) -> str:
        if self.findings:
            return self.findings[0].what
        return self.well if self.unknown is None else self.unknown

    @property
    def is_healthy(self) -> bool:
        return is_healthy(self.findings)

    def item(self) -> dict[str, Any]:
        return {
            "check": self.name,
            "status": self.status,
            "what": self.what,
            "fix": self.findings[0].fix if self.findings else None,
            "findings": [one.item() for one in self.findings],
        }


def examined(found: Evidence) -> list[Check]:
    """All checks, in their order."""
    reasons = [] if found.state is None else examine(found.state)
    reasons += _infos(found)
    checks: list[Callable[[Evidence, Sequence[Reason]], Check]] = [
        *(_port, _advertised, _lock, _disk, _chroot, _cluster_id, _files, _memory, _clock),
        *(_clients, _zookeeper, _cluster),
    ]
    if found.named.is_given:
        checks.append(_options)
    return [_in_order(check(found, reasons)) for check in checks]


def seen_from_here(found: Evidence) -> list[Check]:
    """Those about what a client on this machine meets; of each broker how it was reached."""
    checks = {one.name: one for one in examined(found)}
    advertised = checks["advertised"]
    if found.dialled is not None:
        told = {one.broker for one in advertised.findings if one.broker is not None}
        unreached = [one for one in found.dialled if one.error is not None]
        findings = [
            Reason(
                "silent",
                "error",
                f"broker {one.number} tells clients to connect to {one.where}: {one.error}",
                one.number,
                fix=ADVERTISED_FIX,
            )
            for one in unreached
            if one.number not in told
            and not any(finding.kind == "advertised" for finding in advertised.findings)
        ]
        well = "; ".join(map(_way, found.dialled))
        advertised = Check("advertised", [*advertised.findings, *findings], well)
    return [checks["port"], _in_order(advertised), checks["cluster id"]]


def _way(one: Dialled) -> str:
    host = one.where.rpartition(":")[0]
    named = ", ".join(address for address in one.found if address != host)
    told = f" ({named})" if named else ""
    took = one.error if one.milliseconds is None else f"in {one.milliseconds:g} ms"
    return f"broker {one.number} at {one.where}{told} {took}"


def _in_order(check: Check) -> Check:
    return Check(check.name, worst_first(check.findings), check.well, check.unknown)


def _infos(found: Evidence) -> list[Reason]:
    """What the cluster's health leaves out, as it needs nobody."""
    own = [one for health in found.healths.values() for one in health.reasons]
    return [one for one in own if one not in told_of(own)]


def _of(name: str, reasons: Iterable[Reason]) -> list[Reason]:
    return [one for one in reasons if one.kind in _OF_KINDS[name]]


def _unasked(found: Evidence, *, needs_ours: bool = False) -> str | None:
    """Why brokers have not told something; None if they have."""
    if found.state is None:
        return NOBODY
    if found.unasked is not None:
        return found.unasked
    return NOT_OURS if needs_ours and not found.healths else None


# --- of the start --------------------------------------------------------------------------------


def _port(found: Evidence, _reasons: Sequence[Reason]) -> Check:
    bad = [one for one in found.reached if not one.is_broker]
    severity: Severity = "error" if len(bad) == len(found.reached) else "warning"
    findings = [Reason("port", severity, _at_port(one), fix=one.fix) for one in bad]
    good = ", ".join(one.where for one in found.reached if one.is_broker)
    if found.unreached is not None:
        fix = "check the properties given with -X, and the broker's log"
        findings.append(Reason("port", "error", found.unreached, fix=fix))
    return Check("port", findings, f"a Kafka broker answers at {good}")


def _at_port(one: Reached) -> str:
    if one.error is not None:
        return f"no broker is reached at {one.where}: {one.error}"
    if one.is_local and one.holder is not None:
        return f"{one.where} is held by {one.holder}, which {one.foreign}"
    return f"{one.where} {one.foreign}"


def _advertised(found: Evidence, reasons: Sequence[Reason]) -> Check:
    if found.state is None:
        return Check("advertised", unknown=NOBODY)
    findings = _of("advertised", reasons)
    told = {one.broker for one in findings}
    if not any(one.kind == "advertised" for one in findings):
        findings += [
            Reason("silent", "error", _unreached(found.state, one), one.number, fix=ADVERTISED_FIX)
            for one in found.brokers.values()
            if one.dial_error is not None and one.number not in told
        ]
    findings += _misleading(found, found.state)
    count = counted(len(found.state.brokers), "broker")
    well = f"{count} reached from this machine at the address that clients are told"
    return Check("advertised", findings, well)


def _unreached(state: ClusterState, one: BrokerEvidence) -> str:
    address = next(broker.address for broker in state.brokers if broker.number == one.number)
    return f"broker {one.number} tells clients to connect to {address}: {one.dial_error}"


def _misleading(found: Evidence, state: ClusterState) -> list[Reason]:
    """An address that means each client's own machine, of a cluster that is elsewhere."""
    far = [one for one in found.reached if one.is_broker and not one.is_local]
    if not far:
        return []
    findings = []
    for broker in state.brokers:
        if broker.host.lower().startswith(_LOOPBACK):
            what = (
                f"we reached {far[0].where}, but broker {broker.number} tells clients to connect "
                f"to {broker.address}, which is their own machine"
            )
            fix = f"set advertised.listeners=PLAINTEXT://{far[0].host}:{broker.port} on the broker"
            findings.append(Reason("advertised", "error", what, broker.number, fix=fix))
    return findings


def _lock(found: Evidence, _reasons: Sequence[Reason]) -> Check:
    if not found.dirs:
        unknown = "no log directory of a broker is on this machine (--data DIR names one)"
        if found.state is None:
            unknown = f"{NOBODY} to name its log directories (--data DIR names one)"
        return Check("lock", unknown=unknown)
    findings = []
    for one in found.dirs:
        if one.broker is not None and one.has_lock and one.holder is None:
            what = f"broker {one.broker} runs, but no process here holds {one.path}/.lock"
            fix = "see whether it runs in a container, or end it and start it again: without a lock"
            fix += " a second broker could open the same logs"
            findings.append(Reason("lock", "warning", what, one.broker, fix=fix))
        elif one.broker is None and one.holder is not None:
            what = f"{one.path} is in use by {_process(found, one)}: no other broker can use it"
            fix = "connect to that broker with -b, or end it first; leave the lock as it is"
            findings.append(Reason("lock", "info", what, fix=fix))
    held = ", ".join(sorted({_process(found, one) for one in found.dirs if one.holder}))
    looked_at = _listed([str(one.path) for one in found.dirs])
    well = f"log directories here are held by {held}" if held else "the log directories are free"
    return Check("lock", findings, f"{well} ({looked_at})")


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - DIRECTORIES_SHOWN_MAX
    shown = ", ".join(texts[:DIRECTORIES_SHOWN_MAX])
    return f"{shown}, and {more} more" if more > 0 else shown


def _process(found: Evidence, one: LocalDir) -> str:
    for process in found.processes:
        if one.holder == f"pid {process.pid}":
            broker = f"broker {one.broker}, " if one.broker is not None else ""
            return f"{broker}{process.name} {one.holder} since {process.since}"
    return one.holder or "nobody"


def _disk(found: Evidence, reasons: Sequence[Reason]) -> Check:
    findings = [_with_topics(found, one) for one in _of("disk", reasons)]
    told = {one.broker for one in findings}
    volumes = _volumes(found)
    for broker, path, total, free in volumes:
        used = (total - free) * 100 // max(1, total)
        if used >= DISK_USED_WARN_PERCENT and broker not in told:
            what = f"broker {broker}: the volume of {path} is {used} % full ({size(free)} free)"
            reason = Reason("disk_filling", "warning", what, broker)
            findings.append(_with_topics(found, reason))
    unknown = _unasked(found)
    if unknown is None and not volumes:
        unknown = "unknown against this broker: it tells no free space (Kafka does since 3.3)"
    least = min((free for *_, free in volumes), default=0)
    well = f"{counted(len(volumes), 'log directory', 'log directories')}, at least {size(least)} "
    return Check("disk", findings, f"{well}free", unknown)


def _volumes(found: Evidence) -> list[tuple[int, str, int, int]]:
    """Broker, directory, all and free bytes, where that is told."""
    return [
        (one.number, place.log_dir, place.total_bytes, place.usable_bytes)
        for one in found.brokers.values()
        for place in one.log_dirs or ()
        if place.error_code == 0 and place.total_bytes > 0
    ]


def _with_topics(found: Evidence, reason: Reason) -> Reason:
    """With the largest topics of its broker, and the command that shortens one."""
    sizes: dict[str, int] = {}
    broker = found.brokers.get(-1 if reason.broker is None else reason.broker)
    for place in broker.log_dirs or () if broker is not None else ():
        for topic in place.topics:
            bytes_ = sum(one.partition_size for one in topic.partitions)
            sizes[topic.name] = sizes.get(topic.name, 0) + bytes_
    largest = sorted(
        (name for name in sizes if not is_internal(name) and sizes[name]),
        key=lambda name: -sizes[name],
    )[:LARGEST_TOPICS]
    if broker is None or reason.kind not in ("log_dir_full", "disk_filling"):
        return reason
    of_topics, used = sum(sizes.values()), _used(broker)
    if of_topics * 100 < TOPICS_SMALL_PERCENT * used:
        fix = (
            "free space there: something other than this broker's topics fills the volume. They "
            f"take {size(of_topics)} of {size(used)} in use, so deleting records would help little"
        )
        return Reason(reason.kind, reason.severity, reason.what, reason.broker, fix=fix)
    if not largest:
        return reason
    told = ", ".join(f"{name} {size(sizes[name])}" for name in largest)
    fix = (
        f"free space there, or keep less of the largest topics ({told}): "
        f"`pyrklog topic alter {largest[0]} --set retention.ms=86400000` keeps a day"
    )
    return Reason(reason.kind, reason.severity, reason.what, reason.broker, fix=fix)


def _used(broker: BrokerEvidence) -> int:
    """Bytes in use on the least used of the broker's volumes; 0 where one does not tell.

    A finding does not say which volume it is about, so topics must be small beside each.
    """
    return min(
        (
            max(0, one.total_bytes - one.usable_bytes) if one.total_bytes > 0 else 0
            for one in broker.log_dirs or ()
            if one.error_code == 0
        ),
        default=0,
    )


def _chroot(found: Evidence, _reasons: Sequence[Reason]) -> Check:
    told = _zookeeper_connects(found)
    if told is None:
        return Check("chroot", unknown=_unasked(found) or "brokers tell no options")
    roots = {number: chroot_of(text) for number, text in told.items()}
    findings = []
    if len(set(roots.values())) > 1:
        shown = ", ".join(f"broker {n} {root or '/'}" for n, root in sorted(roots.items()))
        what = f"brokers of one cluster name different chroots of ZooKeeper: {shown}"
        fix = "give each broker the zookeeper.connect of the one with the cluster's data"
        findings.append(Reason("chroot", "error", what, fix=fix))
    findings += _other_chroots(found, roots)
    if not roots:
        return Check("chroot", findings, "no ZooKeeper: the brokers keep the metadata themselves")
    return Check("chroot", findings, f"all brokers are below {next(iter(roots.values())) or '/'}")


def _other_chroots(found: Evidence, roots: dict[int, str]) -> list[Reason]:
    """Of the file given, and of directories here."""
    findings = []
    known = next(iter(roots.values()), None)
    if found.named.zookeeper is not None and known not in (None, chroot_of(found.named.zookeeper)):
        what = (
            f"the file given names the chroot {chroot_of(found.named.zookeeper) or '/'}, the "
            f"cluster's brokers are below {known or '/'}"
        )
        fix = f"set zookeeper.connect to end in {known or 'no chroot'} to join this cluster"
        findings.append(Reason("chroot", "error", what, fix=fix))
    for one in found.dirs:
        if one.zookeeper is not None and known not in (None, chroot_of(one.zookeeper)):
            what = f"{one.path} belongs to a cluster below {chroot_of(one.zookeeper) or '/'}"
            fix = f"start its broker with zookeeper.connect={one.zookeeper}"
            findings.append(Reason("chroot", "error", what, one.broker, fix=fix))
    return findings


def chroot_of(connect: str) -> str:
    """``h1:2181,h2:2181/kafka`` is below ``/kafka``; "" without a chroot."""
    _, slash, path = connect.partition("/")
    return f"{slash}{path}".rstrip("/")


def _zookeeper_connects(found: Evidence) -> dict[int, str] | None:
    """Of the brokers with ZooKeeper; None where none tells its options."""
    told = [one for one in found.brokers.values() if one.options is not None]
    if not told:
        return None
    values = {one.number: (one.options or {}).get("zookeeper.connect") for one in told}
    return {number: text for number, text in values.items() if text}


def _cluster_id(found: Evidence, _reasons: Sequence[Reason]) -> Check:
    if found.state is None:
        return Check("cluster id", unknown=NOBODY)
    own = found.state.cluster_id
    findings = []
    others = {one.where: one.cluster_id for one in found.reached}
    others |= {
        f"the address that broker {one.number} tells": one.cluster_id
        for one in found.brokers.values()
    }
    for where, other in others.items():
        if other is not None and other != own:
            what = f"at {where} answers the cluster {other}, not {own}"
            fix = "name brokers of one cluster, each with an address of its own"
            findings.append(Reason("cluster_id", "error", what, fix=fix))
    for one in found.dirs:
        findings += _foreign_dir(one, own)
    return Check("cluster id", findings, f"the cluster is {own} wherever it was asked")


def _foreign_dir(one: LocalDir, cluster_id: str | None) -> list[Reason]:
    found = []
    if one.cluster_id is not None and one.cluster_id != cluster_id:
        what = f"{one.path} belongs to the cluster {one.cluster_id}, the brokers are {cluster_id}"
        kept = f" (zookeeper.connect={one.zookeeper})" if one.zookeeper else ""
        fix = f"start its broker in its own cluster{kept}, or give this one an empty directory"
        found.append(Reason("cluster_id", "error", what, one.broker, fix=fix))
    if one.broker is not None and one.node_id not in (None, one.broker):
        what = f"{one.path} is that of broker {one.node_id}, but broker {one.broker} uses it"
        fix = "give each broker directories of its own"
        found.append(Reason("cluster_id", "error", what, one.broker, fix=fix))
    return found


# --- of running brokers --------------------------------------------------------------------------


def _files(found: Evidence, reasons: Sequence[Reason]) -> Check:
    findings = _of("files", reasons)
    told = {one.broker for one in findings}
    known = [one for one in found.processes if one.open_files is not None and one.files_limit]
    shown = []
    for one in known:
        used, limit = one.open_files or 0, one.files_limit or 1
        who = f"pid {one.pid}" if one.broker is None else f"broker {one.broker}"
        shown.append(f"{who} has {used:,} of {limit:,} in use")
        if used * 100 >= FILES_WARN_PERCENT * limit and (
            one.broker is None or one.broker not in told
        ):
            few: Severity = "degraded" if used * 100 >= FILES_FEW_PERCENT * limit else "warning"
            what = f"{who} has {used:,} of {limit:,} file handles in use"
            findings.append(Reason("file_handles", few, what, one.broker, fix=FILES_FIX))
    unknown = None if known else _unasked(found, needs_ours=True)
    return Check(
        "file handles", findings, "; ".join(shown) or "no broker is short of them", unknown
    )


def _memory(found: Evidence, reasons: Sequence[Reason]) -> Check:
    well = "each broker has the block cache that it wants"
    return Check("memory", _of("memory", reasons), well, _unasked(found, needs_ours=True))


def _clock(found: Evidence, reasons: Sequence[Reason]) -> Check:
    findings = _of("clock", reasons)
    clocks = sorted(
        (one.clock for one in found.healths.values()), key=lambda one: one.least_ahead_ms
    )
    if clocks:
        ahead_ms = clocks[(len(clocks) - 1) // 2].ahead_of(OWN)
        if abs(ahead_ms) > CLOCK_SKEW_WARN_MS:
            side = "behind" if ahead_ms > 0 else "ahead of"
            what = (
                f"this machine's clock is {span(abs(ahead_ms) / 1000)} {side} the brokers': "
                "records produced here get such times"
            )
            findings.append(Reason("clock_skew", "warning", what, fix=CLOCK_FIX))
    well = f"clocks agree within {span(CLOCK_SKEW_WARN_MS / 1000)}"
    return Check("clock", findings, well, _unasked(found, needs_ours=True))


def _clients(found: Evidence, _reasons: Sequence[Reason]) -> Check:
    told = {number: one.response for number, one in found.healths.items()}
    told = {number: one for number, one in told.items() if one.clients is not None}
    clients = merged(told)
    wrong = [one for one in clients if one.why]
    fix = "renew the client's library; `pyrklog cluster clients --outdated` lists all"
    findings = [
        Reason(
            "old_client",
            "warning" if one.refused else "info",
            f"{one.name}: {'; '.join(one.why)}",
            fix=fix,
        )
        for one in wrong[:CLIENTS_SHOWN_MAX]
    ]
    if len(wrong) > CLIENTS_SHOWN_MAX:
        what = f"{len(wrong) - CLIENTS_SHOWN_MAX} more clients are old, or were refused"
        findings.append(Reason("old_client", "info", what, fix=fix))
    unknown = None if told else _unasked(found, needs_ours=True) or NOT_OURS
    well = f"none of {counted(len(clients), 'client')} is old or was refused"
    return Check("clients", findings, well, unknown)


def _zookeeper(found: Evidence, reasons: Sequence[Reason]) -> Check:
    findings = _of("zookeeper", reasons)
    connects = _zookeeper_connects(found)
    if connects == {}:
        return Check(
            "zookeeper", findings, "no ZooKeeper: the brokers keep the metadata themselves"
        )
    silent = [one for one in found.zookeepers if one.error is not None]
    answering = [one for one in found.zookeepers if one.error is None]
    for one in silent:
        what = f"ZooKeeper at {one.address} does not answer this machine: {one.error}"
        fix = "see whether it runs; brokers may still reach it"
        findings.append(Reason("zookeeper_silent", "info", what, fix=fix))
    unknown = None if answering else _unasked(found)
    if unknown is None and connects is None:
        unknown = "brokers tell no options"
    modes = ", ".join(one.mode for one in answering if one.mode is not None)
    servers = counted(len(answering), "server")
    well = f"brokers reach it; {servers} answer here{f' ({modes})' if modes else ''}"
    return Check("zookeeper", findings, well, unknown)


def _options(found: Evidence, _reasons: Sequence[Reason]) -> Check:
    """Of ``--data`` and ``--config``; other checks look into their directories."""
    findings = []
    named = set(found.named.log_dirs)
    for one in found.dirs:
        if one.path in named and not one.exists:
            what = f"the log directory {one.path} does not exist: no broker has written there"
            how = "see that --data, or log.dirs of the file, is the one that the broker has"
            findings.append(Reason("options", "warning", what, fix=how))
    if found.named.refusal is not None:
        what, fix = found.named.refusal
        findings.append(Reason("options", "error", f"a broker would not start: {what}", fix=fix))
    places = _listed([str(path) for path in found.named.log_dirs])
    well = f"a broker would start with the options given, and use {places}"
    return Check("options", findings, well)


def _cluster(found: Evidence, reasons: Sequence[Reason]) -> Check:
    """All else that ``cluster health`` finds."""
    if found.state is None:
        return Check("cluster", unknown=NOBODY)
    findings = [one for one in reasons if one.kind not in _ELSEWHERE]
    count = counted(len(found.state.partitions), "partition")
    return Check("cluster", findings, f"{count} led and in sync")
