import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java client for tests in Python, in one virtual machine for all of them.
 *
 * <p>Each line of standard input is a call: a JSON object with "operation", the name of a method
 * below, and its arguments. Each line of standard output is an answer: "result", or "thrown" and
 * "message" where the client threw an exception. Producers and consumers have names.
 */
public class Rows {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Admin> admins = new HashMap<>();
    private static final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    private static final Map<String, Reader> consumers = new HashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            JsonNode call = JSON.readTree(line);
            Map<String, Object> answer = new HashMap<>();
            try {
                String operation = call.get("operation").asText();
                var method = Rows.class.getDeclaredMethod(operation, JsonNode.class);
                answer.put("result", method.invoke(null, call));
            } catch (InvocationTargetException wrapped) {
                Throwable thrown = wrapped.getCause();
                if (thrown instanceof ExecutionException) thrown = thrown.getCause();
                thrown.printStackTrace();
                answer.put("thrown", thrown.getClass().getSimpleName());
                answer.put("message", String.valueOf(thrown.getMessage()));
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static Properties options(JsonNode call) {
        Properties found = new Properties();
        call.get("options").fields().forEachRemaining(
                option -> found.put(option.getKey(), option.getValue().asText()));
        return found;
    }

    private static TopicPartition partition(JsonNode call) {
        return new TopicPartition(call.get("topic").asText(), call.get("partition").asInt());
    }

    private static Admin admin(JsonNode call) {
        Properties options = new Properties();
        options.put("bootstrap.servers", call.get("bootstrap").asText());
        return admins.computeIfAbsent(
                call.get("bootstrap").asText(), address -> Admin.create(options));
    }

    // --- administration ------------------------------------------------------------------------

    /** Values by name. */
    static Object describeConfigs(JsonNode call) throws Exception {
        var type = ConfigResource.Type.valueOf(call.get("type").asText());
        var resource = new ConfigResource(type, call.get("name").asText());
        Map<String, Object> found = new LinkedHashMap<>();
        var config = admin(call).describeConfigs(List.of(resource)).all().get().get(resource);
        config.entries().forEach(entry -> found.put(entry.name(), String.valueOf(entry.value())));
        return found;
    }

    /** Offset, timestamp and leader epoch; "spec" is earliest, latest, max, or a timestamp. */
    static Object listOffset(JsonNode call) throws Exception {
        String wanted = call.get("spec").asText();
        OffsetSpec spec = switch (wanted) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max" -> OffsetSpec.maxTimestamp();
            default -> OffsetSpec.forTimestamp(Long.parseLong(wanted));
        };
        var isolation = IsolationLevel.valueOf(call.get("isolation").asText());
        var found = admin(call)
                .listOffsets(Map.of(partition(call), spec), new ListOffsetsOptions(isolation))
                .partitionResult(partition(call)).get();
        List<Object> told = new ArrayList<>(List.of(found.offset(), found.timestamp()));
        told.add(found.leaderEpoch().orElse(null));
        return told;
    }

    /** Begins to move a partition. */
    static Object reassign(JsonNode call) throws Exception {
        List<Integer> replicas = new ArrayList<>();
        call.get("replicas").forEach(replica -> replicas.add(replica.asInt()));
        var plan = Optional.of(new NewPartitionReassignment(replicas));
        admin(call).alterPartitionReassignments(Map.of(partition(call), plan)).all().get();
        return null;
    }

    static Object isMoving(JsonNode call) throws Exception {
        return !admin(call).listPartitionReassignments(Set.of(partition(call)))
                .reassignments().get().isEmpty();
    }

    static Object electPreferred(JsonNode call) throws Exception {
        admin(call).electLeaders(ElectionType.PREFERRED, Set.of(partition(call))).all().get();
        return null;
    }

    // --- producers -----------------------------------------------------------------------------

    private static KafkaProducer<String, String> producer(JsonNode call) {
        return producers.get(call.get("name").asText());
    }

    static Object openProducer(JsonNode call) {
        producers.put(call.get("name").asText(), new KafkaProducer<>(
                options(call), new StringSerializer(), new StringSerializer()));
        return null;
    }

    static Object closeProducer(JsonNode call) {
        producers.remove(call.get("name").asText()).close(Duration.ofSeconds(10));
        return null;
    }

    /** Offsets of records, pairs of a value and a timestamp; each in a batch of its own: "apart". */
    static Object send(JsonNode call) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : call.get("records")) {
            Long timestamp = record.get(1).isNull() ? null : record.get(1).asLong();
            sent.add(producer(call).send(new ProducerRecord<>(
                    call.get("topic").asText(), call.get("partition").asInt(), timestamp, null,
                    record.get(0).asText())));
            if (call.get("apart").asBoolean()) producer(call).flush();
        }
        producer(call).flush();
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> one : sent) offsets.add(one.get().offset());
        return offsets;
    }

    static Object initTransactions(JsonNode call) {
        producer(call).initTransactions();
        return null;
    }

    static Object beginTransaction(JsonNode call) {
        producer(call).beginTransaction();
        return null;
    }

    static Object commitTransaction(JsonNode call) {
        producer(call).commitTransaction();
        return null;
    }

    static Object abortTransaction(JsonNode call) {
        producer(call).abortTransaction();
        return null;
    }

    static Object sendOffset(JsonNode call) {
        var metadata = consumers.get(call.get("consumer").asText()).consumer.groupMetadata();
        var offset = new OffsetAndMetadata(call.get("offset").asLong());
        producer(call).sendOffsetsToTransaction(Map.of(partition(call), offset), metadata);
        return null;
    }

    // --- consumers -----------------------------------------------------------------------------

    private static class Reader implements ConsumerRebalanceListener {
        final KafkaConsumer<String, String> consumer;
        final List<Object> events = new ArrayList<>();

        Reader(Properties options) {
            consumer = new KafkaConsumer<>(
                    options, new StringDeserializer(), new StringDeserializer());
        }

        private void note(String what, Collection<TopicPartition> partitions) {
            events.add(List.of(what, partitions.stream().map(TopicPartition::partition).toList()));
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            note("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            note("revoked", partitions);
        }
    }

    private static KafkaConsumer<String, String> consumer(JsonNode call) {
        return consumers.get(call.get("name").asText()).consumer;
    }

    /** Subscribes to "topic", or assigns "partition" of it. */
    static Object openConsumer(JsonNode call) {
        Reader reader = new Reader(options(call));
        consumers.put(call.get("name").asText(), reader);
        if (call.hasNonNull("partition")) {
            reader.consumer.assign(List.of(partition(call)));
        } else {
            reader.consumer.subscribe(List.of(call.get("topic").asText()), reader);
        }
        return null;
    }

    static Object closeConsumer(JsonNode call) {
        consumers.remove(call.get("name").asText()).consumer.close(Duration.ofSeconds(10));
        return null;
    }

    /** Offset, timestamp, leader epoch, key and value of each record. */
    static Object poll(JsonNode call) {
        List<List<Object>> found = new ArrayList<>();
        long wait = call.get("ms").asLong();
        for (ConsumerRecord<String, String> one : consumer(call).poll(Duration.ofMillis(wait))) {
            List<Object> fields = new ArrayList<>(List.of(one.offset(), one.timestamp()));
            fields.add(one.leaderEpoch().orElse(null));
            fields.add(one.key());
            fields.add(one.value());
            found.add(fields);
        }
        return found;
    }

    static Object events(JsonNode call) {
        return consumers.get(call.get("name").asText()).events;
    }

    static Object assignment(JsonNode call) {
        return consumer(call).assignment().stream().map(TopicPartition::partition).sorted()
                .toList();
    }

    /** "epoch" null: none. */
    static Object seek(JsonNode call) {
        Optional<Integer> epoch = call.get("epoch").isNull()
                ? Optional.empty() : Optional.of(call.get("epoch").asInt());
        consumer(call).seek(
                partition(call), new OffsetAndMetadata(call.get("offset").asLong(), epoch, ""));
        return null;
    }

    static Object seekToEnd(JsonNode call) {
        consumer(call).seekToEnd(List.of(partition(call)));
        return consumer(call).position(partition(call));
    }

    static Object seekToBeginning(JsonNode call) {
        consumer(call).seekToBeginning(List.of(partition(call)));
        return consumer(call).position(partition(call));
    }

    static Object position(JsonNode call) {
        return consumer(call).position(partition(call));
    }

    static Object lag(JsonNode call) {
        var lag = consumer(call).currentLag(partition(call));
        return lag.isPresent() ? lag.getAsLong() : null;
    }

    /** Commits "offset" with a "note". */
    static Object commit(JsonNode call) {
        var offset = new OffsetAndMetadata(
                call.get("offset").asLong(), call.get("note").asText());
        consumer(call).commitSync(Map.of(partition(call), offset));
        return null;
    }

    /** Offset and note, or null. */
    static Object committed(JsonNode call) {
        var found = consumer(call).committed(new HashSet<>(List.of(partition(call))));
        OffsetAndMetadata one = found.get(partition(call));
        return one == null ? null : List.of(one.offset(), one.metadata());
    }

    /** Offset, timestamp and leader epoch, or null, for each of "times". */
    static Object offsetsForTimes(JsonNode call) {
        List<Object> found = new ArrayList<>();
        for (JsonNode time : call.get("times")) {
            OffsetAndTimestamp one = consumer(call)
                    .offsetsForTimes(Map.of(partition(call), time.asLong())).get(partition(call));
            found.add(one == null
                    ? null
                    : List.of(one.offset(), one.timestamp(), one.leaderEpoch().orElse(-1)));
        }
        return found;
    }
}
