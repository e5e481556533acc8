import java.util.Collection;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints Kafka's settings, one per line: kind (topic or broker), name, type, default, with tabs between them.
 *
 * <p>Then reads lines "name, tab, value" and prints "= " and whether the setting of a topic may have that value.
 */
public final class KafkaSettings {
    private KafkaSettings() {}

    public static void main(String[] arguments) throws Exception {
        print("topic", LogConfig.configKeys().values());
        print("broker", kafka.server.KafkaConfig.configDef().configKeys().values());
        var input = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", 2);
            System.out.println("= " + isValid(words[0], words[1]));
        }
    }

    private static void print(String kind, Collection<ConfigDef.ConfigKey> keys) {
        for (ConfigDef.ConfigKey key : keys) {
            String shown = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null;
            System.out.println(String.join("\t", kind, key.name, key.type.name(), String.valueOf(shown)));
        }
    }

    private static boolean isValid(String name, String value) {
        try {
            ConfigDef.ConfigKey key = LogConfig.configKeys().get(name);
            Object parsed = ConfigDef.parseType(name, value, key.type);
            if (key.validator != null) {
                key.validator.ensureValid(name, parsed);
            }
            return true;
        } catch (org.apache.kafka.common.config.ConfigException error) {
            return false;
        }
    }
}
