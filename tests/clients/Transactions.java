// Transactions of the Java client, in one process: starting one costs a second.
// Run by test_java_transactions.py as `java -cp JARS Transactions.java BOOTSTRAP PREFIX`; prints
// "ok NAME" for each check, and "epochs N": how many a producer used for eleven transactions.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transactions {
    static final Duration PATIENCE = Duration.ofSeconds(30);
    static String bootstrap;
    static String prefix;
    static Admin admin;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        prefix = args[1];
        admin = Admin.create(settings());
        commitsAndAborts();
        offsets();
        zombie();
        overdue();
        admin.close();
    }

    static Properties settings(String... pairs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) settings.put(pairs[i], pairs[i + 1]);
        return settings;
    }

    static KafkaProducer<String, String> producer(String id, String... pairs) {
        Properties settings = settings(pairs);
        settings.put("transactional.id", id);
        KafkaProducer<String, String> made =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    static String topic(String name) throws Exception {
        String topic = prefix + name;
        admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
        return topic;
    }

    static void check(boolean condition, Object seen) {
        if (!condition) throw new AssertionError(seen);
    }

    /** Committed values of both partitions, once there are this many and no more. */
    static List<String> committed(String topic, int count) {
        List<String> found = new ArrayList<>();
        List<TopicPartition> places =
                List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                settings("isolation.level", "read_committed"),
                new StringDeserializer(),
                new StringDeserializer())) {
            consumer.assign(places);
            consumer.seekToBeginning(places);
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (found.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(200))) {
                    found.add(one.value());
                }
            }
            consumer.poll(Duration.ofMillis(500)).forEach(one -> found.add(one.value()));
        }
        check(found.size() == count, found);
        return found.stream().sorted().toList();
    }

    static void commitsAndAborts() throws Exception {
        String topic = topic("ends");
        List<String> expected = new ArrayList<>();
        int first;
        int last;
        try (KafkaProducer<String, String> producer = producer(topic)) {
            first = epoch(topic);
            for (int turn = 0; turn < 11; turn++) {
                boolean commits = turn % 3 != 1;
                producer.beginTransaction();
                for (int partition = 0; partition < 2; partition++) {
                    String value = String.format("%02d.%d", turn, partition);
                    producer.send(new ProducerRecord<>(topic, partition, null, value));
                    if (commits) expected.add(value);
                }
                if (commits) producer.commitTransaction();
                else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
            last = epoch(topic);
        }
        check(committed(topic, expected.size()).equals(expected), expected);
        System.out.println("epochs " + (last - first));
        System.out.println("ok commitsAndAborts");
    }

    static int epoch(String id) throws Exception {
        Map<String, TransactionDescription> found =
                admin.describeTransactions(List.of(id)).all().get();
        return found.get(id).producerEpoch();
    }

    static void offsets() throws Exception {
        String topic = topic("offsets");
        String group = topic + "-group";
        TopicPartition place = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer(topic);
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                        settings("group.id", group, "enable.auto.commit", "false",
                                "auto.offset.reset", "earliest",
                                "isolation.level", "read_committed"),
                        new StringDeserializer(),
                        new StringDeserializer())) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "input"));
            producer.commitTransaction();
            consumer.subscribe(List.of(topic));
            while (consumer.poll(Duration.ofMillis(200)).isEmpty()) {}
            for (boolean commits : new boolean[] {false, true}) {
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(
                        Map.of(place, new OffsetAndMetadata(commits ? 1 : 7)),
                        consumer.groupMetadata());
                producer.send(new ProducerRecord<>(topic, 1, null, "output " + commits));
                if (commits) producer.commitTransaction();
                else producer.abortTransaction();
                OffsetAndMetadata told = consumer.committed(java.util.Set.of(place)).get(place);
                check(commits ? told.offset() == 1 : told == null, Optional.ofNullable(told));
            }
        }
        check(committed(topic, 2).equals(List.of("input", "output true")), topic);
        System.out.println("ok offsets");
    }

    static void zombie() throws Exception {
        String topic = topic("zombie");
        try (KafkaProducer<String, String> zombie = producer(topic)) {
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>(topic, 0, null, "of the zombie"));
            zombie.flush();
            try (KafkaProducer<String, String> heir = producer(topic)) {
                heir.beginTransaction();
                heir.send(new ProducerRecord<>(topic, 0, null, "of the heir"));
                heir.commitTransaction();
            }
            try {
                zombie.commitTransaction();
                throw new AssertionError("the zombie committed");
            } catch (ProducerFencedException | InvalidProducerEpochException expected) {
                check(committed(topic, 1).equals(List.of("of the heir")), topic);
            }
        }
        System.out.println("ok zombie");
    }

    static void overdue() throws Exception {
        String topic = topic("overdue");
        try (KafkaProducer<String, String> producer =
                producer(topic, "transaction.timeout.ms", "1000")) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "late"));
            producer.flush();
            while (epoch(topic) == 0) Thread.sleep(100);
            try {
                producer.commitTransaction();
                throw new AssertionError("it was committed");
            } catch (KafkaException expected) {
                check(committed(topic, 0).isEmpty(), topic);
            }
        }
        System.out.println("ok overdue");
    }
}
