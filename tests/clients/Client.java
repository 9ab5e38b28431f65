// What a user of the Java client does, in one process: starting one costs a second.
// Run by test_java.py as `java -cp JARS Client.java BOOTSTRAP PREFIX`; prints "ok NAME" for each check.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Client {
    // An hour ago, on a full second: brokers delete records of a week ago, whoever wrote them.
    static final long START_MS = System.currentTimeMillis() / 1000 * 1000 - 3_600_000;
    static String bootstrap;
    static String prefix;
    static Admin admin;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        prefix = args[1];
        admin = Admin.create(settings());
        compression();
        readWhatOthersWrote();
        offsets();
        order();
        options();
        topics();
        deleteRecords();
        directories();
        admin.close();
    }

    static Properties settings(String... pairs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) settings.put(pairs[i], pairs[i + 1]);
        return settings;
    }

    static KafkaProducer<byte[], byte[]> producer(String... pairs) {
        return new KafkaProducer<>(
                settings(pairs), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String... pairs) {
        return new KafkaConsumer<>(
                settings(pairs), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void check(boolean condition, Object... seen) {
        if (!condition) throw new AssertionError(Arrays.deepToString(seen));
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void write(String topic, int count, long startMs, String... pairs) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(pairs)) {
            for (int i = 0; i < count; i++) {
                byte[] value = bytes("value ".repeat(20) + i);
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                        topic, 0, startMs + 1000L * i, i % 2 == 0 ? null : bytes("k" + i), value);
                record.headers().add("h", bytes("" + i)).add("n", null);
                sent.add(producer.send(record));
            }
        }
        for (int i = 0; i < count; i++) {
            check(sent.get(i).get().offset() - sent.get(0).get().offset() == i, i);
        }
    }

    static List<ConsumerRecord<byte[], byte[]>> read(
            String topic, long start, int count, String... pairs) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(pairs)) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, start);
            long deadline = System.currentTimeMillis() + 30_000;
            while (found.size() < count && System.currentTimeMillis() < deadline) {
                consumer.poll(Duration.ofMillis(500)).forEach(found::add);
            }
        }
        check(found.size() == count, topic, found.size(), count);
        return found;
    }

    static void compression() throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = prefix + "codec-" + codec;
            write(topic, 50, START_MS, "compression.type", codec);
            write(topic, 50, START_MS, "compression.type", codec, "enable.idempotence", "false");
            List<ConsumerRecord<byte[], byte[]>> found =
                    read(topic, 0, 100, "isolation.level", "read_committed");
            for (int i = 0; i < 100; i++) {
                ConsumerRecord<byte[], byte[]> one = found.get(i);
                check(one.offset() == i && one.timestamp() == START_MS + 1000L * (i % 50), one);
                check(new String(one.value()).endsWith(" " + i % 50), one);
                check((one.key() == null) == (i % 2 == 0), one);
                check(new String(one.headers().lastHeader("h").value()).equals("" + i % 50), one);
                check(one.headers().lastHeader("n").value() == null, one);
                check(one.leaderEpoch().equals(Optional.of(0)), one);
            }
        }
        System.out.println("ok compression");
    }

    // test_java.py wrote 10 records by each of librdkafka's codecs to one topic.
    static void readWhatOthersWrote() {
        List<ConsumerRecord<byte[], byte[]>> found = read(prefix + "from-python", 0, 50);
        for (int i = 0; i < 50; i++) {
            check(new String(found.get(i).value()).equals("python " + i), i);
        }
        System.out.println("ok readWhatOthersWrote");
    }

    static ListOffsetsResultInfo offset(String topic, OffsetSpec spec) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
    }

    static void offsets() throws Exception {
        String topic = prefix + "offsets";
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        check(offset(topic, OffsetSpec.earliest()).offset() == 0);
        check(offset(topic, OffsetSpec.latest()).offset() == 0);
        check(offset(topic, OffsetSpec.maxTimestamp()).offset() == -1);
        check(offset(topic, OffsetSpec.forTimestamp(1)).offset() == -1);
        write(topic, 10, START_MS + 50_000);
        write(topic, 10, START_MS, "compression.type", "lz4");
        ListOffsetsResultInfo newest = offset(topic, OffsetSpec.maxTimestamp());
        check(newest.offset() == 9 && newest.timestamp() == START_MS + 59_000, newest);
        check(offset(topic, OffsetSpec.latest()).offset() == 20);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            check(consumer.beginningOffsets(List.of(partition)).get(partition) == 0);
            check(consumer.endOffsets(List.of(partition)).get(partition) == 20);
            consumer.assign(List.of(partition));
            consumer.seekToEnd(List.of(partition));
            check(consumer.position(partition) == 20);
        }
        System.out.println("ok offsets");
    }

    static void order() throws Exception {
        String topic = prefix + "order";
        write(topic, 5_000, START_MS, "linger.ms", "0", "batch.size", "300");
        List<ConsumerRecord<byte[], byte[]>> found = read(topic, 0, 5_000, "fetch.max.bytes", "20000");
        for (int i = 0; i < 5_000; i++) {
            check(new String(found.get(i).value()).endsWith(" " + i), i);
        }
        System.out.println("ok order");
    }

    static Throwable cause(Future<?> future) throws Exception {
        try {
            future.get();
            return null;
        } catch (ExecutionException error) {
            return error.getCause();
        }
    }

    static void options() throws Exception {
        String topic = prefix + "options";
        NewTopic one = new NewTopic(topic, Optional.empty(), Optional.empty());
        var created = admin.createTopics(List.of(one.configs(Map.of("segment.ms", "60000"))));
        check(created.config(topic).get().get("segment.ms").value().equals("60000"));
        check(created.numPartitions(topic).get() == 1 && created.replicationFactor(topic).get() == 1);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp set = new AlterConfigOp(
                new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
        var described = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        check(described.get("retention.ms").source()
                == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, described);
        check(described.get("segment.bytes").isDefault(), described);
        AlterConfigOp bad = new AlterConfigOp(
                new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET);
        Throwable error = cause(admin.incrementalAlterConfigs(Map.of(resource, List.of(bad))).all());
        check(error instanceof InvalidConfigurationException, error);
        System.out.println("ok options");
    }

    static void topics() throws Exception {
        String topic = prefix + "topics";
        NewTopic one = new NewTopic(topic, 2, (short) 1);
        admin.createTopics(List.of(one)).all().get();
        check(cause(admin.createTopics(List.of(one)).all()) instanceof TopicExistsException);
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
        TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        check(found.partitions().size() == 4 && !found.isInternal(), found);
        check(found.partitions().get(3).isr().size() == 1, found);
        Uuid id = found.topicId();
        check(!id.equals(Uuid.ZERO_UUID), found);
        check(admin.listTopics().names().get().contains(topic));
        admin.deleteTopics(List.of(topic)).all().get();
        check(!admin.listTopics().names().get().contains(topic));
        admin.createTopics(List.of(one)).all().get();
        found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        check(!found.topicId().equals(id), "a recreated topic has an id of its own");
        check(admin.listPartitionReassignments().reassignments().get().isEmpty());
        System.out.println("ok topics");
    }

    static void deleteRecords() throws Exception {
        String topic = prefix + "delete";
        TopicPartition partition = new TopicPartition(topic, 0);
        write(topic, 10, START_MS);
        long low = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(7)))
                .lowWatermarks().get(partition).get().lowWatermark();
        check(low == 7, low);
        check(offset(topic, OffsetSpec.earliest()).offset() == 7);
        check(read(topic, 7, 3).get(0).offset() == 7);
        System.out.println("ok deleteRecords");
    }

    static void directories() throws Exception {
        Collection<Integer> ids = new ArrayList<>();
        admin.describeCluster().nodes().get().forEach(node -> ids.add(node.id()));
        var directories = admin.describeLogDirs(ids).allDescriptions().get();
        TopicPartition partition = new TopicPartition(prefix + "order", 0);
        long size = 0;
        for (var byPath : directories.values()) {
            for (var one : byPath.values()) {
                check(one.error() == null && one.totalBytes().getAsLong() > 0, one);
                var replica = one.replicaInfos().get(partition);
                if (replica != null) size += replica.size();
            }
        }
        check(size > 5_000 * 120, size);
        System.out.println("ok directories");
    }
}
