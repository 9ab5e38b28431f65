// A consumer that reads a topic from its beginning to its end, again and again. Run by rereading.py as
// `java -cp JARS Rereader BOOTSTRAP TOPIC PARTITIONS RACK`. After each pass it prints "pass N". It ends
// with an exception at any error, at an offset that is out of range, and where a record is not the
// next one.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Rereader {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("client.rack", args[3]);
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", "false");
        List<TopicPartition> all = IntStream.range(0, Integer.parseInt(args[2]))
                .mapToObj(number -> new TopicPartition(args[1], number)).toList();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(all);
            for (int pass = 1;; pass++) {
                readAll(consumer, all);
                System.out.println("pass " + pass);
            }
        }
    }

    static void readAll(KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> all) {
        Map<TopicPartition, Long> ends = consumer.endOffsets(all);
        Map<TopicPartition, Long> next = new HashMap<>();
        all.forEach(place -> next.put(place, 0L));
        consumer.seekToBeginning(all);
        while (all.stream().anyMatch(place -> next.get(place) < ends.get(place))) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                TopicPartition place = new TopicPartition(record.topic(), record.partition());
                if (record.offset() != next.get(place)) {
                    throw new AssertionError(place + ": " + record.offset() + " instead of " + next);
                }
                next.merge(place, 1L, Long::sum);
            }
        }
    }
}
