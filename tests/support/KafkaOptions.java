import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import kafka.server.DynamicBrokerConfig$;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints Kafka's definitions of broker and topic options, and what it says of wrong values of the
 * latter, as JSON.
 */
public class KafkaOptions {
    private static final List<String> PROBES = Arrays.asList(
        "", "x", "-131073", "-3", "-2", "-1", "0", "1", "9", "10", "17", "18", "22", "23", "0.5", "1.5",
        "2147483648", "9223372036854775808", "true", "maybe", "delete,x", "gzip", "0:1", "0:a");

    public static void main(String[] args) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("probes", PROBES);
        found.put("broker", all(KafkaConfig.configDef(), true));
        found.put("topic", all(LogConfig.configDefCopy(), false));
        ObjectMapper mapper = new ObjectMapper().enable(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS);
        List<String> lines = new ArrayList<>();
        for (Map.Entry<String, Object> part : found.entrySet()) {
            if (part.getValue() instanceof Map) {
                List<String> options = new ArrayList<>();
                for (Map.Entry<?, ?> option : ((Map<?, ?>) part.getValue()).entrySet())
                    options.add(mapper.writeValueAsString(option.getKey()) + ": "
                        + mapper.writeValueAsString(option.getValue()));
                lines.add("\"" + part.getKey() + "\": {\n" + String.join(",\n", options) + "\n}");
            } else {
                lines.add("\"" + part.getKey() + "\": " + mapper.writeValueAsString(part.getValue()));
            }
        }
        System.out.println("{\n" + String.join(",\n", lines) + "\n}");
    }

    private static Map<String, Object> all(ConfigDef definition, boolean ofBroker) {
        Map<String, String> modes = DynamicBrokerConfig$.MODULE$.dynamicConfigUpdateModes();
        Map<String, Object> found = new TreeMap<>();
        for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
            Map<String, Object> option = new LinkedHashMap<>();
            option.put("type", key.type.name());
            option.put("importance", key.importance.name().toLowerCase());
            if (key.hasDefault())
                option.put("default", ConfigDef.convertToString(key.defaultValue, key.type));
            if (ofBroker)
                option.put("mode", modes.getOrDefault(key.name, "read-only"));
            else {
                option.put("broker", ServerTopicConfigSynonyms.TOPIC_CONFIG_SYNONYMS.get(key.name));
                option.put("refused", refused(key));
            }
            found.put(key.name, option);
        }
        return found;
    }

    private static Map<String, String> refused(ConfigDef.ConfigKey key) {
        Map<String, String> refused = new LinkedHashMap<>();
        for (String probe : PROBES) {
            try {
                Object value = ConfigDef.parseType(key.name, probe, key.type);
                if (key.validator != null)
                    key.validator.ensureValid(key.name, value);
            } catch (ConfigException thrown) {
                refused.put(probe, thrown.getMessage());
            }
        }
        return refused;
    }
}
