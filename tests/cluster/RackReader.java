// A consumer in a rack. Run by test_follower_reads.py as
// `java -cp JARS RackReader.java BOOTSTRAP TOPIC RACK COUNT`: reads partition 0 from the beginning until
// it has COUNT records and knows a preferred replica; prints "replica N", then each value on a line.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class RackReader {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("client.rack", args[2]);
        int count = Integer.parseInt(args[3]);
        // A record a poll: the last ones are asked for when the replica is known.
        settings.put("max.partition.fetch.bytes", "1");
        List<String> values = new ArrayList<>();
        int replica = -1;
        TopicPartition partition = new TopicPartition(args[1], 0);
        long deadline = System.currentTimeMillis() + 60_000;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            while (values.size() < count || replica < 0) {
                if (System.currentTimeMillis() > deadline) {
                    throw new AssertionError(values.size() + " records, replica " + replica);
                }
                consumer.poll(Duration.ofMillis(200)).forEach(record ->
                        values.add(new String(record.value(), StandardCharsets.UTF_8)));
                replica = Math.max(replica, preferredReplica(consumer));
            }
        }
        System.out.println("replica " + replica);
        values.forEach(System.out::println);
    }

    static int preferredReplica(KafkaConsumer<byte[], byte[]> consumer) {
        for (Metric metric : consumer.metrics().values()) {
            boolean isIt = metric.metricName().name().equals("preferred-read-replica");
            if (isIt && metric.metricValue() instanceof Integer number) return number;
        }
        return -1;
    }
}
