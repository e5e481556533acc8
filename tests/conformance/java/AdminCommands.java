import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.zookeeper.server.ZooKeeperServer;
import org.apache.zookeeper.server.admin.Commands;
import org.apache.zookeeper.server.admin.JsonOutputter;
import org.apache.zookeeper.server.quorum.QuorumPeerConfig;
import org.apache.zookeeper.server.quorum.QuorumPeerMain;

/**
 * A quorum of one ZooKeeper that answers the commands of its AdminServer over standard input and output.
 *
 * Argument: its configuration. What it prints is what the AdminServer would send; only the HTTP server around
 * it, whose jars the wheel lacks, is left out. Each word that is read is the name of a command; "names" lists
 * them.
 */
public class AdminCommands {
    static final int WAIT_MS = 60_000;
    static final ObjectMapper JSON = new ObjectMapper();

    static class Main extends QuorumPeerMain {
        ZooKeeperServer server() {
            return quorumPeer == null ? null : quorumPeer.getActiveServer();
        }
    }

    static void say(String event, Object value) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        line.put("value", value);
        System.out.println(JSON.writeValueAsString(line));
        System.out.flush();
    }

    static Object answer(String name, ZooKeeperServer server) throws Exception {
        StringWriter text = new StringWriter();
        PrintWriter writer = new PrintWriter(text);
        new JsonOutputter("").output(Commands.runGetCommand(name, server, Map.of(), null, null), writer);
        writer.flush();
        return JSON.readValue(text.toString(), Map.class);
    }

    static ZooKeeperServer running(Main main) throws Exception {
        long end = System.currentTimeMillis() + WAIT_MS;
        while (main.server() == null || !main.server().isRunning()) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("no server runs");
            }
            Thread.sleep(10);
        }
        return main.server();
    }

    public static void main(String[] arguments) throws Exception {
        QuorumPeerConfig config = new QuorumPeerConfig();
        config.parse(arguments[0]);
        Main main = new Main();
        Thread serving = new Thread(() -> {
            try {
                main.runFromConfig(config);
            } catch (Exception error) {
                error.printStackTrace();
            }
        });
        serving.setDaemon(true);
        serving.start();
        ZooKeeperServer server = running(main);
        say("serves", server.getClientPort());
        BufferedReader words = new BufferedReader(new InputStreamReader(System.in));
        for (String word = words.readLine(); word != null; word = words.readLine()) {
            if (word.equals("names")) {
                say("names", Commands.getPrimaryNames());
            } else {
                say(word, answer(word, server));
            }
        }
        System.exit(0);
    }
}
