import org.apache.kafka.common.protocol.ApiKeys;

/** Lists the requests that this version of Kafka's classes knows: number, name, lowest and highest released version. */
public final class RequestVersions {
    public static void main(String[] arguments) {
        for (ApiKeys each : ApiKeys.values()) {
            System.out.println(each.id + " " + each.name + " " + each.oldestVersion() + " " + each.latestVersion(false));
        }
    }
}
