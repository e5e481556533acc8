import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.TreeMap;
import org.apache.zookeeper.data.Stat;

/**
 * Reads the values of znodes with the classes that Kafka in ZooKeeper mode reads them with.
 *
 * <p>Input: one value per line, as "kind name HEX". Output: one line per value, what Kafka made of it, as it prints it.
 */
public final class KafkaRecords {
    private KafkaRecords() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            System.out.println(read(words[0], words[1], HexFormat.of().parseHex(words[2])));
        }
    }

    private static Object read(String kind, String name, byte[] value) {
        return switch (kind) {
            case "controller" -> kafka.zk.ControllerZNode.decode(value);
            case "controller_epoch" -> kafka.zk.ControllerEpochZNode.decode(value);
            case "broker" -> kafka.zk.BrokerIdZNode.decode(Integer.parseInt(name), value).broker();
            case "topic" -> kafka.zk.TopicZNode.decode(name, value);
            case "state" -> kafka.zk.TopicPartitionStateZNode.decode(value, new Stat());
            case "config" -> new TreeMap<>(kafka.zk.ConfigEntityZNode.decode(value));
            case "cluster" -> kafka.zk.ClusterIdZNode.fromJson(value);
            case "producer_ids" -> kafka.zk.ProducerIdBlockZNode.parseProducerIdBlockData(value);
            default -> throw new IllegalArgumentException(kind);
        };
    }
}
