import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;

/**
 * The tour of Kafka's own client, one line of JSON a step (tests/clients/tours.py says which). What is here compiles with every
 * version since 1.0; what was renamed is in First and Later, what came later in the parts that the command line names.
 *
 * Arguments: brokers, topic, First or Later, then parts.
 */
public final class Tour {
    static final int RECORDS = 100;

    /** What versions call differently. */
    interface Calls {
        ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer);

        TopicDescription describe(AdminClient admin, String topic) throws Exception;

        void set(AdminClient admin, ConfigResource resource, String name, String value) throws Exception;
    }

    /** What only later versions can do. */
    interface Part {
        void run(Tour tour) throws Exception;
    }

    final String bootstrap;
    final String topic;
    final String group;
    final AdminClient admin;
    final Calls calls;

    private Tour(String bootstrap, String topic, Calls calls) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.group = topic + "-group";
        this.calls = calls;
        this.admin = AdminClient.create(properties());
    }

    public static void main(String[] arguments) throws Exception {
        Calls calls = (Calls) Class.forName(arguments[2]).getDeclaredConstructor().newInstance();
        Tour tour = new Tour(arguments[0], arguments[1], calls);
        try {
            tour.begin();
            for (String part : Arrays.asList(arguments).subList(3, arguments.length)) {
                ((Part) Class.forName(part).getDeclaredConstructor().newInstance()).run(tour);
            }
            tour.end();
        } finally {
            tour.admin.close();
        }
    }

    Properties properties(String... others) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        all.put("client.id", "tour");
        for (int index = 0; index < others.length; index += 2) {
            all.put(others[index], others[index + 1]);
        }
        return all;
    }

    static void say(String step, Object... what) {
        StringBuilder line = new StringBuilder("{\"step\": \"" + step + "\"");
        for (int index = 0; index < what.length; index += 2) {
            Object value = what[index + 1];
            line.append(", \"").append(what[index]).append("\": ");
            line.append(value instanceof String ? "\"" + value + "\"" : value);
        }
        System.out.println(line.append("}"));
    }

    private void begin() throws Exception {
        List<NewTopic> wanted = Collections.singletonList(new NewTopic(topic, 3, (short) 3));
        admin.createTopics(wanted).all().get();
        boolean again = false;
        try {
            admin.createTopics(wanted).all().get();
        } catch (ExecutionException error) {
            again = error.getCause() instanceof TopicExistsException;
        }
        say("created", "again", again);
        TopicDescription found = calls.describe(admin, topic);
        say("described", "partitions", found.partitions().size(), "replicas", found.partitions().get(0).replicas().size());
        if (admin.describeCluster().nodes().get().size() != 3 || admin.describeCluster().controller().get() == null) {
            throw new IllegalStateException("the cluster is not described");
        }
        produce();
        say("read", "records", read(group));
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reader(group))) {
            long offsets = 0;
            for (int partition = 0; partition < 3; partition++) {
                // the call is a version's own: one partition in 1.0, a set since 2.4
                offsets += committed(consumer, new TopicPartition(topic, partition)).offset();
            }
            say("committed", "offsets", offsets);
        }
    }

    @SuppressWarnings("unchecked")
    private OffsetAndMetadata committed(KafkaConsumer<String, String> consumer, TopicPartition partition) throws Exception {
        try {
            return (OffsetAndMetadata) KafkaConsumer.class.getMethod("committed", TopicPartition.class).invoke(consumer, partition);
        } catch (NoSuchMethodException later) {
            Object found = KafkaConsumer.class.getMethod("committed", java.util.Set.class)
                    .invoke(consumer, Collections.singleton(partition));
            return ((Map<TopicPartition, OffsetAndMetadata>) found).get(partition);
        }
    }

    private void produce() throws Exception {
        for (int half = 0; half < 2; half++) {
            Properties properties = properties("acks", "all", "enable.idempotence", "true",
                    "compression.type", half == 0 ? "none" : "gzip",
                    "key.serializer", "org.apache.kafka.common.serialization.StringSerializer",
                    "value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
                for (int number = half * RECORDS / 2; number < (half + 1) * RECORDS / 2; number++) {
                    ProducerRecord<String, String> record = new ProducerRecord<>(topic, "key " + number, "value " + number);
                    record.headers().add("number", Integer.toString(number).getBytes("UTF-8"));
                    sent.add(producer.send(record));
                }
            }
            for (Future<RecordMetadata> each : sent) {
                each.get();
            }
        }
        say("produced", "records", RECORDS);
    }

    Properties reader(String group, String... others) {
        Properties properties = properties(others);
        properties.putAll(properties("group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
                "key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer",
                "value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer"));
        return properties;
    }

    /** Read all records as a member of a group and commit them. */
    List<String> read(String group, String... others) throws Exception {
        List<String> read = new ArrayList<>();
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reader(group, others))) {
            consumer.subscribe(Collections.singletonList(topic));
            while (read.size() < RECORDS) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(read.size() + " records after a minute");
                }
                for (ConsumerRecord<String, String> each : calls.poll(consumer)) {
                    String header = new String(each.headers().lastHeader("number").value(), "UTF-8");
                    read.add("[\"" + each.key() + "\", \"" + each.value() + "\", \"" + header + "\"]");
                }
                consumer.commitSync();
            }
        }
        return read;
    }

    private void end() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        calls.set(admin, resource, "retention.ms", "3600000");
        // another broker may answer, which hears of the change a moment later
        String value = null;
        long deadline = System.nanoTime() + Duration.ofSeconds(10).toNanos();
        while (!"3600000".equals(value) && System.nanoTime() < deadline) {
            value = admin.describeConfigs(Collections.singleton(resource)).all().get().get(resource).get("retention.ms").value();
        }
        say("configured", "retention.ms", value);
        Map<String, NewPartitions> grown = new HashMap<>();
        grown.put(topic, NewPartitions.increaseTo(4));
        admin.createPartitions(grown).all().get();
        say("grown", "partitions", 4);
        admin.deleteTopics(Collections.singleton(topic)).all().get();
        if (admin.listTopics().names().get().contains(topic)) {
            throw new IllegalStateException("the topic is still there");
        }
        say("deleted");
    }
}
