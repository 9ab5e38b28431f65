import java.time.Duration;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * What MirrorMaker's own reader finds at a target: topics with checkpoints ("topic NAME"), and
 * where a group of the source goes on there ("offset TOPIC PARTITION OFFSET METADATA").
 *
 * <p>Arguments: bootstrap servers, the source's alias, group, class of the replication policy.
 */
public class RemoteOffsets {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", arguments[0],
                "replication.policy.class", arguments[3]);
        for (String topic : new TreeSet<>(RemoteClusterUtils.checkpointTopics(settings))) {
            System.out.println("topic " + topic);
        }
        RemoteClusterUtils
                .translateOffsets(settings, arguments[1], arguments[2], Duration.ofSeconds(30))
                .forEach((place, offset) -> System.out.println(String.join(" ", "offset",
                        place.topic(), "" + place.partition(), "" + offset.offset(),
                        offset.metadata())));
    }
}
