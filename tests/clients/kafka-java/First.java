import java.util.Collections;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.config.ConfigResource;

/** Calls as they were in 1.0. */
public final class First implements Tour.Calls {
    @Override
    public ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) {
        return consumer.poll(100);
    }

    @Override
    public TopicDescription describe(AdminClient admin, String topic) throws Exception {
        return admin.describeTopics(Collections.singleton(topic)).all().get().get(topic);
    }

    @Override
    public void set(AdminClient admin, ConfigResource resource, String name, String value) throws Exception {
        Config only = new Config(Collections.singleton(new ConfigEntry(name, value)));
        admin.alterConfigs(Collections.singletonMap(resource, only)).all().get();
    }
}
