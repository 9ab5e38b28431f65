// Copies a topic's records to another one, exactly once, until it is killed: the Java client's way.
//
// Run by copying.py as `Copier BOOTSTRAP NAME LIFE GROUP SOURCE TARGET`. It prints its operations
// as lines of JSON, as copier.py does.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Copier {
    static final int NONE = -1;
    static final double SHARE_ABORTED = 0.2;
    static final int OPEN_MS_MAX = 100;

    final String name;
    final String client;
    final String target;
    final KafkaConsumer<byte[], byte[]> consumer;
    final KafkaProducer<byte[], byte[]> producer;
    final Random random = new Random();
    String transaction = "";
    int number;

    public static void main(String[] args) {
        try {
            new Copier(args).run();
        } catch (RuntimeException | InterruptedException failure) {
            failure.printStackTrace();
            // Without leaving the group: one more kill.
            Runtime.getRuntime().halt(1);
        }
    }

    Copier(String[] args) {
        name = args[1];
        client = args[1] + "/" + args[2];
        target = args[5];
        Properties reading = new Properties();
        reading.put("bootstrap.servers", args[0]);
        reading.put("group.id", args[3]);
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        reading.put("isolation.level", "read_committed");
        reading.put("session.timeout.ms", "3000");
        reading.put("heartbeat.interval.ms", "500");
        reading.put("max.poll.records", "20");
        // The others do not wait long for one that is paused, or hangs in a call.
        reading.put("max.poll.interval.ms", "10000");
        consumer = new KafkaConsumer<>(
                reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Properties writing = new Properties();
        writing.put("bootstrap.servers", args[0]);
        writing.put("transactional.id", name);
        writing.put("transaction.timeout.ms", "10000");
        producer = new KafkaProducer<>(
                writing, new ByteArraySerializer(), new ByteArraySerializer());
        tellInit("invoke");
        producer.initTransactions();
        tellInit("ok");
        consumer.subscribe(List.of(args[4]));
    }

    void run() throws InterruptedException {
        while (true) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(50));
            if (!records.isEmpty()) copy(records);
        }
    }

    /** Ends the process where its producer is fenced, or broken for good: abort throws then. */
    void copy(ConsumerRecords<byte[], byte[]> records) throws InterruptedException {
        transaction = client + "/" + ++number;
        tell("begin", "ok", NONE, NONE, NONE);
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> one : records) {
                write(one);
                offsets.put(
                        new TopicPartition(one.topic(), one.partition()),
                        new OffsetAndMetadata(one.offset() + 1));
            }
            producer.flush();
            // Readers and faults find it open.
            Thread.sleep(random.nextInt(OPEN_MS_MAX));
            if (random.nextDouble() > SHARE_ABORTED) {
                commit(offsets);
                return;
            }
        } catch (KafkaException failure) {
            System.err.println(transaction + ": " + failure);
        }
        tell("abort_transaction", "invoke", NONE, NONE, NONE);
        untilDone(producer::abortTransaction);
        tell("abort_transaction", "ok", NONE, NONE, NONE);
        goBack();
    }

    void write(ConsumerRecord<byte[], byte[]> one) {
        String value = new String(one.value(), StandardCharsets.ISO_8859_1).split(" ", 2)[0];
        tell("send", "invoke", one.partition(), Long.parseLong(value), NONE);
        byte[] copy = (value + " " + transaction + " ").getBytes(StandardCharsets.ISO_8859_1);
        producer.send(new ProducerRecord<>(target, one.partition(), null, copy));
    }

    void commit(Map<TopicPartition, OffsetAndMetadata> offsets) {
        offsets.forEach((place, offset) ->
                tell("send_offsets", "invoke", place.partition(), NONE, offset.offset()));
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        tell("commit_transaction", "invoke", NONE, NONE, NONE);
        untilDone(producer::commitTransaction);
        tell("commit_transaction", "ok", NONE, NONE, NONE);
    }

    /** A time-out leaves the end as it is, and the call waits on when it is repeated. */
    void untilDone(Runnable end) {
        while (true) {
            try {
                end.run();
                return;
            } catch (TimeoutException late) {
                System.err.println(transaction + ": " + late);
            }
        }
    }

    /** The records are read again. */
    void goBack() {
        Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(consumer.assignment());
        for (TopicPartition place : consumer.assignment()) {
            OffsetAndMetadata offset = found.get(place);
            consumer.seek(place, offset == null ? 0 : offset.offset());
        }
    }

    void tellInit(String outcome) {
        print("init", outcome, NONE, NONE, NONE, name, "");
    }

    void tell(String action, String outcome, int partition, long value, long offset) {
        print(action, outcome, partition, value, offset, "", transaction);
    }

    void print(
            String action,
            String outcome,
            int partition,
            long value,
            long offset,
            String note,
            String transaction) {
        System.out.println(String.format(
                "{\"time_ns\": %d, \"client\": \"%s\", \"action\": \"%s\", \"outcome\": \"%s\","
                        + " \"partition\": %d, \"value\": %d, \"offset\": %d, \"note\": \"%s\","
                        + " \"transaction\": \"%s\"}",
                System.nanoTime(), client, action, outcome, partition, value, offset, note,
                transaction));
    }
}
