import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.NoReassignmentInProgressException;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/** What 3.9 and later ask: KIP-848's groups, offsets by kind, log folders, producers, moves and elections. */
public final class Modern implements Tour.Part {
    @Override
    public void run(Tour tour) throws Exception {
        String group = tour.topic + "-modern";
        List<String> read = tour.read(group, "group.protocol", "consumer");
        Tour.say("coordinated", "records", read.size());
        tour.admin.deleteConsumerGroups(Set.of(group)).all().get();

        TopicPartition partition = new TopicPartition(tour.topic, 1);
        long earliest = offset(tour, partition, OffsetSpec.earliest());
        long latest = offset(tour, partition, OffsetSpec.latest());
        long highest = offset(tour, partition, OffsetSpec.maxTimestamp());
        Tour.say("measured", "ordered", earliest == 0 && earliest <= highest && highest < latest);

        TopicDescription found = tour.admin.describeTopics(Set.of(tour.topic),
                new DescribeTopicsOptions().partitionSizeLimitPerResponse(2)).allTopicNames().get().get(tour.topic);
        TopicDescription same = tour.admin.describeTopics(TopicCollection.ofTopicIds(Set.of(found.topicId())))
                .allTopicIds().get().get(found.topicId());
        Tour.say("identified", "same", found.name().equals(same.name()) && found.partitions().size() == 3);

        int broker = found.partitions().get(0).leader().id();
        Map<String, LogDirDescription> folders = tour.admin.describeLogDirs(Set.of(broker)).allDescriptions().get().get(broker);
        long held = folders.values().stream().flatMap(each -> each.replicaInfos().keySet().stream())
                .filter(each -> each.topic().equals(tour.topic)).count();
        Tour.say("located", "partitions", held);
        int producers = tour.admin.describeProducers(Set.of(partition)).partitionResult(partition).get().activeProducers().size();
        Tour.say("watched", "producers", producers > 0);

        tour.admin.listPartitionReassignments().reassignments().get();
        try {
            tour.admin.alterPartitionReassignments(Map.of(partition, Optional.empty())).all().get();
        } catch (ExecutionException error) {
            if (!(error.getCause() instanceof NoReassignmentInProgressException)) {
                throw error;
            }
        }
        tour.admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get();
        tour.admin.describeFeatures().featureMetadata().get();
        tour.admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get();
        Tour.say("governed");
    }

    private static long offset(Tour tour, TopicPartition partition, OffsetSpec kind) throws Exception {
        return tour.admin.listOffsets(Map.of(partition, kind)).partitionResult(partition).get().offset();
    }
}
