"""Broker options of Kafka without effect here, except the defaults of topic options.

A ``server.properties`` for Kafka is accepted: these keys give one notice each.
"""

from __future__ import annotations

_JVM_ONLY = """
    alter.config.policy.class.name authorizer.class.name auto.include.jmx.reporter
    client.quota.callback.class create.topic.policy.class.name kafka.metrics.reporters
    metric.reporters principal.builder.class remote.log.metadata.manager.class.name
    remote.log.metadata.manager.class.path remote.log.storage.manager.class.name
    remote.log.storage.manager.class.path
    sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
    sasl.server.callback.handler.class security.providers ssl.engine.factory.class
    zookeeper.clientCnxnSocket
"""
JVM_ONLY = frozenset(_JVM_ONLY.split())

_WITHOUT_EFFECT = """
    background.threads broker.heartbeat.interval.ms broker.session.timeout.ms
    connection.failed.authentication.delay.ms connections.max.reauth.ms control.plane.listener.name
    controlled.shutdown.enable controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
    controller.quorum.append.linger.ms controller.quorum.bootstrap.servers
    controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
    controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
    controller.quorum.retry.backoff.ms controller.quorum.voters controller.quota.window.num
    controller.quota.window.size.seconds controller.socket.timeout.ms
    delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
    delegation.token.master.key delegation.token.max.lifetime.ms delegation.token.secret.key
    delete.records.purgatory.purge.interval.requests early.start.listeners
    eligible.leader.replicas.enable fetch.purgatory.purge.interval.requests group.consumer.assignors
    group.consumer.heartbeat.interval.ms group.consumer.max.heartbeat.interval.ms
    group.consumer.max.session.timeout.ms group.consumer.max.size group.consumer.migration.policy
    group.consumer.min.heartbeat.interval.ms group.consumer.min.session.timeout.ms
    group.consumer.session.timeout.ms group.coordinator.append.linger.ms
    group.coordinator.new.enable group.coordinator.rebalance.protocols group.coordinator.threads
    group.share.delivery.count.limit group.share.enable group.share.heartbeat.interval.ms
    group.share.max.groups group.share.max.heartbeat.interval.ms
    group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms group.share.max.size
    group.share.min.heartbeat.interval.ms group.share.min.record.lock.duration.ms
    group.share.min.session.timeout.ms group.share.partition.max.record.locks
    group.share.record.lock.duration.ms group.share.session.timeout.ms
    initial.broker.registration.timeout.ms inter.broker.protocol.version
    kafka.metrics.polling.interval.secs log.cleaner.io.buffer.size
    log.dir.failure.timeout.ms log.initial.task.delay.ms metadata.log.dir
    metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
    metadata.log.segment.bytes metadata.log.segment.min.bytes metadata.log.segment.ms
    metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
    metrics.num.samples metrics.recording.level metrics.sample.window.ms
    offsets.commit.required.acks
    password.encoder.cipher.algorithm password.encoder.iterations password.encoder.key.length
    password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret
    process.roles producer.id.expiration.check.interval.ms
    producer.purgatory.purge.interval.requests quota.window.num quota.window.size.seconds
    remote.fetch.max.wait.ms remote.log.index.file.cache.total.size.bytes
    remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
    remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
    remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
    remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
    remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
    remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter
    remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
    remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
    remote.log.reader.max.pending.tasks remote.log.reader.threads
    remote.log.storage.manager.impl.prefix remote.log.storage.system.enable
    replica.socket.receive.buffer.bytes
    request.timeout.ms sasl.enabled.mechanisms sasl.jaas.config
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.mechanism.controller.protocol sasl.mechanism.inter.broker.protocol
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
    sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url sasl.server.max.receive.size
    server.max.startup.time.ms socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms socket.listen.backlog.size ssl.allow.dn.changes
    ssl.allow.san.changes ssl.cipher.suites ssl.client.auth ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.key.password ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.principal.mapping.rules ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
    ssl.truststore.location ssl.truststore.password ssl.truststore.type
    unclean.leader.election.interval.ms unstable.api.versions.enable
    unstable.feature.versions.enable
    zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable
    zookeeper.metadata.migration.min.batch.size
    zookeeper.ssl.cipher.suites zookeeper.ssl.crl.enable
    zookeeper.ssl.enabled.protocols
    zookeeper.ssl.keystore.type
    zookeeper.ssl.ocsp.enable zookeeper.ssl.protocol
    zookeeper.ssl.truststore.password zookeeper.ssl.truststore.type
"""
_OF_AUTHORIZERS = """
    allow.everyone.if.no.acl.found authorizer.zookeeper.connection.timeout.ms
    authorizer.zookeeper.max.in.flight.requests authorizer.zookeeper.session.timeout.ms
    authorizer.zookeeper.url super.users
"""
"""Options that Kafka's authorizers read. Without ``authorizer.class.name``, which is refused, they
have no effect in Kafka either."""
_OF_KAFKA_4 = """
    share.coordinator.append.linger.ms share.coordinator.load.buffer.size
    share.coordinator.snapshot.update.records.per.snapshot
    share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
    share.coordinator.state.topic.num.partitions
    share.coordinator.state.topic.prune.interval.ms
    share.coordinator.state.topic.replication.factor
    share.coordinator.state.topic.segment.bytes share.coordinator.threads
    share.coordinator.write.timeout.ms
"""
"""Options of share groups (KIP-932); some are in the ``server.properties`` that Kafka 4 brings."""
_OF_OLD_KAFKAS = """
    advertised.host.name advertised.port host.name port quota.consumer.default
    quota.producer.default zookeeper.sync.time.ms
"""
"""Options that Kafka 3 has dropped, and ignores."""
WITHOUT_EFFECT = frozenset(
    f"{_WITHOUT_EFFECT} {_OF_AUTHORIZERS} {_OF_KAFKA_4} {_OF_OLD_KAFKAS}".split()
)
"""Options of features that pyrklog lacks (skipped.md)."""

PREFIXES = ("listener.name.", "confluent.", "log4j.")
"""Prefixes of keys with free names; ignored likewise."""
