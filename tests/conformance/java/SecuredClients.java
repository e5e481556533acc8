import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileReader;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;

/**
 * Kafka's own producer and consumer, with the settings of files, all at once: each sends a record and reads it in a group.
 *
 * <p>Arguments: topic, how often both prove a password again at least, files. A line of JSON for each file, by its name: how
 * many records were sent and read, how often both proved themselves again, or the first error.
 */
public final class SecuredClients {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Duration DEADLINE = Duration.ofSeconds(30);

    private SecuredClients() {}

    static synchronized void say(Map<String, Object> line) throws Exception {
        System.out.println(JSON.writeValueAsString(line));
        System.out.flush();
    }

    static double proofs(Map<MetricName, ? extends Metric> metrics) {
        return metrics.entrySet().stream()
            .filter(each -> each.getKey().name().equals("successful-reauthentication-total"))
            .mapToDouble(each -> (double) each.getValue().metricValue())
            .sum();
    }

    static void run(String topic, int wanted, String file, Map<String, Object> line) throws Exception {
        Properties settings = new Properties();
        settings.load(new FileReader(file));
        String text = "org.apache.kafka.common.serialization.String";
        settings.putAll(Map.of("key.serializer", text + "Serializer", "value.serializer", text + "Serializer"));
        settings.putAll(Map.of("key.deserializer", text + "Deserializer", "value.deserializer", text + "Deserializer"));
        settings.putAll(Map.of("auto.offset.reset", "earliest", "group.id", "java-" + line.get("event")));
        settings.putAll(Map.of("max.block.ms", "30000", "retries", "0", "enable.idempotence", "false"));
        String own = (String) line.get("event");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            int sent = 0;
            int read = 0;
            long start = System.nanoTime();
            int proofs = settings.containsKey("sasl.mechanism") ? wanted : 0;
            while (sent == 0
                    || read < sent
                    || proofs(producer.metrics()) < proofs
                    || proofs(consumer.metrics()) < proofs) {
                if (System.nanoTime() - start > DEADLINE.toNanos()) {
                    throw new IllegalStateException(read + " of " + sent + " were read");
                }
                if (sent == read) {
                    producer.send(new ProducerRecord<>(topic, own, "v" + sent)).get();
                    sent++;
                }
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    read += own.equals(record.key()) ? 1 : 0;
                }
            }
            line.putAll(Map.of("sent", sent, "read", read));
            line.putAll(Map.of("producer", proofs(producer.metrics()), "consumer", proofs(consumer.metrics())));
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Thread> running = new TreeMap<>();
        for (int index = 2; index < arguments.length; index++) {
            String file = arguments[index];
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("event", new java.io.File(file).getName().replace(".properties", ""));
            Thread each = new Thread(() -> {
                try {
                    try {
                        run(arguments[0], Integer.parseInt(arguments[1]), file, line);
                    } catch (Exception error) {
                        Throwable cause = error;
                        StringBuilder story = new StringBuilder();
                        for (; cause != null; cause = cause.getCause()) {
                            story.append(cause).append("; ");
                        }
                        line.put("error", story.toString());
                    }
                    say(line);
                } catch (Exception error) {
                    error.printStackTrace();
                }
            });
            each.start();
            running.put(file, each);
        }
        for (Thread each : running.values()) {
            each.join();
        }
    }
}
