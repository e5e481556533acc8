// A Flink job that copies one topic to another exactly once, on a MiniCluster of two task managers.
// Arguments: the brokers, a folder for checkpoints, the transactional id's prefix. When the test writes a line to standard
// input, one task manager is ended. It writes lines of JSON and ends with standard input.

import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class FlinkCopy {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, "file://" + arguments[1]);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, 100);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, java.time.Duration.ofMillis(500));
        MiniCluster cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
            .setConfiguration(settings)
            .setNumTaskManagers(2)
            .setNumSlotsPerTaskManager(2)
            .build());
        cluster.start();

        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(2);
        environment.enableCheckpointing(1000);
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setTopics("in")
            .setGroupId("flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setProperty("partition.discovery.interval.ms", "1000")
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(arguments[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(arguments[2])
            .setProperty("transaction.timeout.ms", "60000")
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic("out")
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "in").sinkTo(sink);
        cluster.submitJob(environment.getStreamGraph().getJobGraph()).get();
        say("running", "");
        int word;
        int next = 0;
        while ((word = System.in.read()) >= 0) {
            if (word == '\n') {
                CompletableFuture<Void> ended = cluster.terminateTaskManager(next++);
                ended.get();
                cluster.startTaskManager();
                say("killed", "");
            }
        }
        cluster.close();
    }

    private static synchronized void say(String event, String text) {
        System.out.println("{\"event\": \"" + event + "\", \"text\": \"" + text + "\"}");
        System.out.flush();
    }
}
