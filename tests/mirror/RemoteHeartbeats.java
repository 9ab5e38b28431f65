import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.mirror.Heartbeat;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * What MirrorMaker's own reader finds at a cluster: clusters whose topics are there ("upstream NAME
 * HOPS"), and the heartbeats of one topic ("heartbeat SOURCE TARGET MILLISECONDS").
 *
 * <p>Arguments: bootstrap servers, topic, class of the replication policy.
 */
public class RemoteHeartbeats {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        Map<String, Object> policy = Map.of(
                "bootstrap.servers", arguments[0],
                "replication.policy.class", arguments[2]);
        for (String name : new TreeSet<>(RemoteClusterUtils.upstreamClusters(policy))) {
            int hops = RemoteClusterUtils.replicationHops(policy, name);
            System.out.println("upstream " + name + " " + hops);
        }
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            TopicPartition place = new TopicPartition(arguments[1], 0);
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            long end = consumer.endOffsets(List.of(place)).get(place);
            while (consumer.position(place) < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    Heartbeat found = Heartbeat.deserializeRecord(record);
                    System.out.println(String.join(" ", "heartbeat", found.sourceClusterAlias(),
                            found.targetClusterAlias(), "" + found.timestamp()));
                }
            }
        }
    }
}
