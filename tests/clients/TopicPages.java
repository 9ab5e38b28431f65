// The admin client describes topics in pages. Run by test_topic_pages.py as
// `java -cp JARS TopicPages.java BOOTSTRAP TOPICS LIMIT`: prints each partition of the
// topics (names behind commas) as "TOPIC PARTITION LEADER REPLICAS ISR", an unknown topic as
// "TOPIC EXCEPTION".

import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartitionInfo;

public class TopicPages {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        List<String> topics = Arrays.asList(args[1].split(","));
        DescribeTopicsOptions options = new DescribeTopicsOptions()
                .partitionSizeLimitPerResponse(Integer.parseInt(args[2]));
        try (Admin admin = Admin.create(settings)) {
            TreeMap<String, KafkaFuture<TopicDescription>> found =
                    new TreeMap<>(admin.describeTopics(topics, options).topicNameValues());
            for (String topic : found.keySet()) print(topic, found.get(topic));
        }
    }

    static void print(String topic, KafkaFuture<TopicDescription> found) throws Exception {
        TopicDescription description;
        try {
            description = found.get();
        } catch (ExecutionException thrown) {
            System.out.println(topic + " " + thrown.getCause().getClass().getSimpleName());
            return;
        }
        for (TopicPartitionInfo one : description.partitions()) {
            List<Integer> replicas = one.replicas().stream().map(node -> node.id()).toList();
            List<Integer> isr = one.isr().stream().map(node -> node.id()).toList();
            int leader = one.leader() == null ? -1 : one.leader().id();
            System.out.printf("%s %d %d %s %s%n", topic, one.partition(), leader, replicas, isr);
        }
    }
}
