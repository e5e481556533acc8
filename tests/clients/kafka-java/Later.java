import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.config.ConfigResource;

/** Calls as they are since 3.1. */
public final class Later implements Tour.Calls {
    @Override
    public ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) {
        return consumer.poll(Duration.ofMillis(100));
    }

    @Override
    public TopicDescription describe(AdminClient admin, String topic) throws Exception {
        return admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic);
    }

    @Override
    public void set(AdminClient admin, ConfigResource resource, String name, String value) throws Exception {
        AlterConfigOp operation = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(operation))).all().get();
    }
}
