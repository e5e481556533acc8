import java.util.Collections;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.TopicPartition;

/** What the admin client can do since 2.0: groups, and the deletion of records. */
public final class Groups implements Tour.Part {
    @Override
    public void run(Tour tour) throws Exception {
        boolean listed = tour.admin.listConsumerGroups().all().get().stream().anyMatch(each -> each.groupId().equals(tour.group));
        String state = tour.admin.describeConsumerGroups(Collections.singleton(tour.group)).all().get().get(tour.group).state()
                .toString();
        Tour.say("grouped", "listed", listed, "state", state);
        long offsets = tour.admin.listConsumerGroupOffsets(tour.group).partitionsToOffsetAndMetadata().get().values().stream()
                .mapToLong(each -> each.offset()).sum();
        if (offsets != Tour.RECORDS) {
            throw new IllegalStateException("the group's offsets sum up to " + offsets);
        }
        TopicPartition partition = new TopicPartition(tour.topic, 0);
        // -1: all that is there
        long low = tour.admin.deleteRecords(Collections.singletonMap(partition, RecordsToDelete.beforeOffset(-1)))
                .lowWatermarks().get(partition).get().lowWatermark();
        Tour.say("purged", "emptied", low > 0);
        tour.admin.deleteConsumerGroups(Collections.singleton(tour.group)).all().get();
        Tour.say("ungrouped");
    }
}
