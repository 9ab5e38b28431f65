// Transactions that outlive their process, as Flink's sink needs them: one process writes and
// flushes, another one with the same producer id and epoch commits. The clients have no call for
// that, so it is done as Flink does it, in the client's private fields.
//
// Run by test_taken_over_transactions.py as `TakeOver BOOTSTRAP`. Each line of standard input
// is a command, a method of this class and its arguments; it is answered by a line: "ok" and a
// result, or "threw" and an exception's class.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

public class TakeOver {
    final String bootstrap;
    /** By transactional id. */
    final Map<String, KafkaProducer<String, String>> kept = new HashMap<>();

    public static void main(String[] args) throws Exception {
        TakeOver machine = new TakeOver(args[0]);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            String answer;
            try {
                answer = "ok " + machine.call(words);
            } catch (Exception failure) {
                failure.printStackTrace();
                answer = "threw " + failure.getClass().getSimpleName();
            }
            System.out.println(answer);
        }
        System.exit(0);
    }

    TakeOver(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    Object call(String[] words) throws Exception {
        return switch (words[0]) {
            case "prepare" -> prepare(words[1], words[2]);
            case "finish" -> finish(words[1]);
            case "commit" -> commit(words[1], Long.parseLong(words[2]), Short.parseShort(words[3]));
            case "abort" -> abort(words[1], Long.parseLong(words[2]), Short.parseShort(words[3]));
            case "become" -> reuse(words[1], words[2]);
            case "initialize" -> initialize(words[1]);
            case "probe" -> probe(words[1], Integer.parseInt(words[2]));
            case "lingering" -> lingering(words[1]);
            default -> throw new IllegalArgumentException(words[0]);
        };
    }

    KafkaProducer<String, String> producer(String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", "300000");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    /** A producer whose transaction has ended is kept for another id. */
    String reuse(String id, String next) throws Exception {
        become(kept.get(id), next);
        kept.put(next, kept.remove(id));
        return "";
    }

    /** Writes the id to the topic's two partitions, and keeps the transaction open. Producer id and epoch. */
    String prepare(String id, String topic) throws Exception {
        KafkaProducer<String, String> producer = kept.computeIfAbsent(id, this::producer);
        producer.initTransactions();
        producer.beginTransaction();
        for (int partition = 0; partition < 2; partition++) {
            producer.send(new ProducerRecord<>(topic, partition, null, id));
        }
        producer.flush();
        return producerId(producer) + " " + epoch(producer);
    }

    /** The process that has prepared it commits it. */
    String finish(String id) {
        kept.get(id).commitTransaction();
        return "";
    }

    String commit(String id, long producerId, short epoch) throws Exception {
        try (KafkaProducer<String, String> producer = producer(id)) {
            takeOver(producer, producerId, epoch);
            producer.commitTransaction();
        }
        return "";
    }

    String abort(String id, long producerId, short epoch) throws Exception {
        try (KafkaProducer<String, String> producer = producer(id)) {
            takeOver(producer, producerId, epoch);
            producer.abortTransaction();
        }
        return "";
    }

    /** A new producer of this id; its epoch. */
    short initialize(String id) throws Exception {
        try (KafkaProducer<String, String> producer = producer(id)) {
            producer.initTransactions();
            return epoch(producer);
        }
    }

    /** Initializes the ids PREFIX-START and so on up to one that was unused: its epoch is 0. Returns
     * the count of the others. One producer changes its id. */
    int probe(String prefix, int start) throws Exception {
        try (KafkaProducer<String, String> producer = producer(prefix + "-" + start)) {
            for (int number = start; ; number++) {
                become(producer, prefix + "-" + number);
                producer.initTransactions();
                if (epoch(producer) == 0) return number - start;
            }
        }
    }

    /** Ids of a topic's open transactions, sorted, with commas. */
    String lingering(String topic) throws Exception {
        List<TopicPartition> places =
                List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(settings)) {
            Set<Long> producers = admin.describeProducers(places).all().get().values().stream()
                    .flatMap(one -> one.activeProducers().stream())
                    .map(ProducerState::producerId)
                    .collect(Collectors.toSet());
            ListTransactionsOptions open = new ListTransactionsOptions()
                    .filterProducerIds(producers)
                    .filterStates(List.of(TransactionState.ONGOING));
            return String.join(",", admin.listTransactions(open).all().get().stream()
                    .map(TransactionListing::transactionalId)
                    .collect(Collectors.toCollection(TreeSet::new)));
        }
    }

    // --- what is private ------------------------------------------------------------------------

    static Object manager(KafkaProducer<String, String> producer) throws Exception {
        return field(KafkaProducer.class, "transactionManager").get(producer);
    }

    static Object identity(KafkaProducer<String, String> producer) throws Exception {
        Object manager = manager(producer);
        return field(manager.getClass(), "producerIdAndEpoch").get(manager);
    }

    static long producerId(KafkaProducer<String, String> producer) throws Exception {
        Object identity = identity(producer);
        return (long) field(identity.getClass(), "producerId").get(identity);
    }

    static short epoch(KafkaProducer<String, String> producer) throws Exception {
        Object identity = identity(producer);
        return (short) field(identity.getClass(), "epoch").get(identity);
    }

    /** Goes on with a transaction that another process has begun. */
    static void takeOver(KafkaProducer<String, String> producer, long producerId, short epoch)
            throws Exception {
        Object manager = manager(producer);
        synchronized (manager) {
            moveTo(manager, "INITIALIZING");
            Field identity = field(manager.getClass(), "producerIdAndEpoch");
            Class<?> type = identity.getType();
            Constructor<?> made = type.getDeclaredConstructor(long.class, short.class);
            made.setAccessible(true);
            identity.set(manager, made.newInstance(producerId, epoch));
            moveTo(manager, "READY");
            moveTo(manager, "IN_TRANSACTION");
            if (hasField(manager, "latestFinalizedFeaturesEpoch")) {
                // A client 4.0 that learns of transactions' version 2 before it ends this one would
                // begin the next epoch afterwards. Whether it does is a race.
                field(manager.getClass(), "latestFinalizedFeaturesEpoch")
                        .set(manager, Long.MAX_VALUE);
            }
            // Otherwise there would be nothing to end.
            field(manager.getClass(), "transactionStarted").set(manager, true);
        }
    }

    /** Gives a producer another id; it must be initialized then. */
    static void become(KafkaProducer<String, String> producer, String id) throws Exception {
        Object manager = manager(producer);
        synchronized (manager) {
            field(manager.getClass(), "transactionalId").set(manager, id);
            field(manager.getClass(), "currentState").set(manager, state(manager, "UNINITIALIZED"));
        }
    }

    static void moveTo(Object manager, String name) throws Exception {
        Class<?> states = field(manager.getClass(), "currentState").getType();
        Method move = manager.getClass().getDeclaredMethod("transitionTo", states);
        move.setAccessible(true);
        move.invoke(manager, state(manager, name));
    }

    static Object state(Object manager, String name) throws Exception {
        for (Object one : field(manager.getClass(), "currentState").getType().getEnumConstants()) {
            if (one.toString().equals(name)) return one;
        }
        throw new IllegalArgumentException(name);
    }

    static boolean hasField(Object owner, String name) {
        return Arrays.stream(owner.getClass().getDeclaredFields())
                .anyMatch(one -> one.getName().equals(name));
    }

    static Field field(Class<?> owner, String name) throws Exception {
        Field found = owner.getDeclaredField(name);
        found.setAccessible(true);
        return found;
    }
}
