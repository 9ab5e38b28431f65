// Counts words exactly once, with its state in RocksDB and in a changelog topic.
// Run by tests/support/streams.py as `java -cp JARS WordCount.java BOOTSTRAP NAME INPUT OUTPUT STATE`;
// prints "state STATE" for each state, "restored PARTITION RECORDS" for each restored store, and
// "died EXCEPTION" for an exception that ended a thread.

import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueStore;

public class WordCount {
    // So that the changelog has many segments to compact.
    static final Map<String, String> CHANGELOG =
            Map.of("segment.bytes", "20000", "min.cleanable.dirty.ratio", "0.01");

    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", args[1]);
        settings.put("state.dir", args[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("num.stream.threads", "2");
        // Each count is written, so that a reader sees every count once.
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("repartition.purge.interval.ms", "500");
        // Those of a killed application are waited for.
        settings.put("session.timeout.ms", "3000");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("transaction.timeout.ms", "5000");

        StreamsBuilder builder = new StreamsBuilder();
        Serde<String> text = Serdes.String();
        builder.stream(args[2], Consumed.with(text, text))
                .flatMapValues(line -> List.of(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with("words", text, text))
                .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts")
                        .withKeySerde(text)
                        .withValueSerde(Serdes.Long())
                        .withLoggingEnabled(CHANGELOG))
                .toStream()
                .mapValues(String::valueOf)
                .to(args[3], Produced.with(text, text));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.setGlobalStateRestoreListener(new Restored());
        streams.setUncaughtExceptionHandler(thrown -> {
            System.out.println("died " + thrown);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
    }

    static class Restored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition place, String store, long first, long end) {}

        @Override
        public void onBatchRestored(TopicPartition place, String store, long last, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition place, String store, long count) {
            System.out.println("restored " + place.partition() + " " + count);
        }
    }
}
