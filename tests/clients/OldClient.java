// What a user of the Java client of 0.9, 0.10 or 0.11 does; compiles with each of them.
// Run by test_old_clients.py as `java -cp JARS OldClient.java BOOTSTRAP PREFIX`; prints "ok NAME" for
// each check. The test has written topic PREFIX-modern: values "modern 0" to "modern 29".

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class OldClient {
    static final int RECORDS = 200;
    static String bootstrap;
    static String prefix;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        prefix = args[1];
        compression();
        acknowledgements();
        modern();
        groups();
    }

    static void compression() throws Exception {
        for (String codec : Arrays.asList("none", "gzip", "snappy", "lz4")) {
            String topic = prefix + "-" + codec;
            produce(topic, RECORDS, "compression.type", codec, "linger.ms", "20");
            check(read(topic, RECORDS).equals(values("old", 0, RECORDS)), codec);
        }
        ok("compression");
    }

    static void acknowledgements() throws Exception {
        for (String acks : Arrays.asList("0", "1", "all")) {
            String topic = prefix + "-acks-" + acks;
            produce(topic, RECORDS, "acks", acks);
            check(read(topic, RECORDS).equals(values("old", 0, RECORDS)), acks);
        }
        ok("acknowledgements");
    }

    static void modern() {
        check(read(prefix + "-modern", 30).equals(values("modern", 0, 30)), "modern");
        ok("modern");
    }

    static void groups() throws Exception {
        String topic = prefix + "-group";
        produce(topic, 100);
        List<String> found = new ArrayList<>();
        for (int life = 0; life < 2; life++) {
            KafkaConsumer<String, String> consumer =
                    consumer("group.id", prefix, "max.partition.fetch.bytes", "1000");
            consumer.subscribe(Arrays.asList(topic));
            int wanted = life == 0 ? found.size() + 1 : 100;
            poll(consumer, found, wanted);
            consumer.commitSync();
            consumer.close();
        }
        check(found.equals(values("old", 0, 100)), found.toString());
        ok("groups");
    }

    static void produce(String topic, int count, String... pairs) throws Exception {
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings(pairs), new StringSerializer(), new StringSerializer());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String value : values("old", 0, count)) {
            sent.add(producer.send(new ProducerRecord<String, String>(topic, 0, "key", value)));
        }
        producer.close();
        for (Future<RecordMetadata> one : sent) one.get();
    }

    static List<String> read(String topic, int count) {
        KafkaConsumer<String, String> consumer = consumer();
        consumer.assign(Arrays.asList(new TopicPartition(topic, 0)));
        List<String> found = new ArrayList<>();
        poll(consumer, found, count);
        consumer.close();
        return found;
    }

    static void poll(KafkaConsumer<String, String> consumer, List<String> found, int count) {
        long deadline = System.currentTimeMillis() + 30_000;
        while (found.size() < count && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<String, String> record : consumer.poll(200)) found.add(record.value());
        }
    }

    static KafkaConsumer<String, String> consumer(String... pairs) {
        Properties settings = settings(pairs);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static Properties settings(String... pairs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) settings.put(pairs[i], pairs[i + 1]);
        return settings;
    }

    static List<String> values(String word, int first, int end) {
        List<String> values = new ArrayList<>();
        for (int i = first; i < end; i++) values.add(word + " " + i);
        return values;
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static void ok(String name) {
        System.out.println("ok " + name);
    }
}
