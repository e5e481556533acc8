// A Kafka Streams application: counts words, and joins two topics within a window. Arguments: the brokers, a
// folder for its state, the processing guarantee, the topic of the counts, which is also the application's id.
// It reads `words`, `left` and `right` and writes counts (word, count as text) and `joined` (key,
// "left+right"). It writes a line of JSON for each state it comes to, and ends with standard input.

import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;

public class StreamsCounts {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[3]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[2]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 3);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 6000);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 1000);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG), 10000);

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("words")
            .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as("counted"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[3]);
        KStream<String, String> left = builder.stream("left");
        KStream<String, String> right = builder.stream("right");
        left.join(right, (one, other) -> one + "+" + other,
                JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofHours(1)))
            .to("joined");

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            say("failed", String.valueOf(error).replaceAll("[\"\\\\\\n]", " "));
            return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> say(now.name().toLowerCase(Locale.ROOT), ""));
        streams.start();
        while (System.in.read() >= 0) {
            // until the test closes it
        }
        streams.close(Duration.ofSeconds(20));
        say("closed", "");
    }

    private static synchronized void say(String event, String text) {
        System.out.println("{\"event\": \"" + event + "\", \"text\": \"" + text + "\"}");
        System.out.flush();
    }
}
