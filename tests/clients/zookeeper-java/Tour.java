import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * The tour of ZooKeeper's own client: the calls of its programmer's guide, one line of JSON a step (tests/clients/tours.py says
 * which). What is here compiles with every version since 3.4.8; what came later is in the parts that the command line names.
 *
 * Arguments: hosts, a root that is not there yet, then parts.
 */
public final class Tour {
    /** What only later versions can do. */
    interface Part {
        void run(Tour tour) throws Exception;
    }

    final String hosts;
    final String root;
    final ZooKeeper client;
    final LinkedBlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();

    private Tour(String hosts, String root) throws Exception {
        this.hosts = hosts;
        this.root = root;
        this.client = connect();
    }

    public static void main(String[] arguments) throws Exception {
        Tour tour = new Tour(arguments[0], arguments[1]);
        tour.run();
        for (String part : Arrays.asList(arguments).subList(2, arguments.length)) {
            ((Part) Class.forName(part).getDeclaredConstructor().newInstance()).run(tour);
        }
        tour.delete(tour.root);
        tour.client.close();
        say("closed");
    }

    static void say(String step, Object... what) {
        StringBuilder line = new StringBuilder("{\"step\": \"" + step + "\"");
        for (int index = 0; index < what.length; index += 2) {
            Object value = what[index + 1];
            line.append(", \"").append(what[index]).append("\": ");
            line.append(value instanceof Number || value instanceof Boolean ? value : "\"" + value + "\"");
        }
        System.out.println(line.append("}"));
    }

    ZooKeeper connect() throws Exception {
        final CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper made = new ZooKeeper(hosts, 10_000, new Watcher() {
            @Override
            public void process(WatchedEvent event) {
                if (event.getState() == Event.KeeperState.SyncConnected) {
                    connected.countDown();
                }
            }
        });
        if (!connected.await(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not connected");
        }
        return made;
    }

    final Watcher watcher = new Watcher() {
        @Override
        public void process(WatchedEvent event) {
            if (event.getPath() != null) {
                events.add(event);
            }
        }
    };

    String event() throws Exception {
        WatchedEvent event = events.poll(30, TimeUnit.SECONDS);
        return event == null ? "none" : event.getType() + " " + event.getPath().substring(root.length());
    }

    String create(ZooKeeper by, String path, String data, CreateMode mode) throws Exception {
        return by.create(path, data.getBytes("UTF-8"), ZooDefs.Ids.OPEN_ACL_UNSAFE, mode);
    }

    private void run() throws Exception {
        create(client, root, "root", CreateMode.PERSISTENT);
        create(client, root + "/node", "one", CreateMode.PERSISTENT);
        String again = "made";
        try {
            create(client, root + "/node", "two", CreateMode.PERSISTENT);
        } catch (KeeperException.NodeExistsException error) {
            again = error.code().toString();
        }
        say("created", "again", again, "sequence",
                create(client, root + "/item-", "", CreateMode.PERSISTENT_SEQUENTIAL).substring(root.length()));

        Stat stat = new Stat();
        byte[] data = client.getData(root + "/node", watcher, stat);
        client.setData(root + "/node", "three".getBytes("UTF-8"), stat.getVersion());
        String stale = "set";
        try {
            client.setData(root + "/node", "four".getBytes("UTF-8"), stat.getVersion());
        } catch (KeeperException.BadVersionException error) {
            stale = error.code().toString();
        }
        say("changed", "before", new String(data, "UTF-8"), "after", new String(client.getData(root + "/node", false, null), "UTF-8"),
                "stale", stale, "event", event());

        ZooKeeper other = connect();
        create(other, root + "/member", "here", CreateMode.EPHEMERAL);
        client.sync(root, null, null);
        List<String> children = client.getChildren(root, false);
        Collections.sort(children);
        Stat member = client.exists(root + "/member", watcher);
        boolean owned = member.getEphemeralOwner() == other.getSessionId();
        other.close();
        say("watched", "children", String.join(" ", children), "owned", owned, "event", event());

        List<OpResult> done = client.multi(Arrays.asList(
                Op.check(root + "/node", 1),
                Op.create(root + "/all", new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
                Op.setData(root + "/node", "five".getBytes("UTF-8"), 1),
                Op.delete(root + "/all", 0)));
        String failed = "done";
        try {
            client.multi(Arrays.asList(
                    Op.delete(root + "/node", -1), Op.check(root + "/nowhere", -1)));
        } catch (KeeperException error) {
            failed = error.code() + " " + error.getResults().size();
        }
        say("together", "results", done.size(), "failed", failed, "kept", client.exists(root + "/node", false) != null);

        client.addAuthInfo("digest", "tour:secret".getBytes("UTF-8"));
        client.create(root + "/mine", new byte[0], ZooDefs.Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
        ZooKeeper stranger = connect();
        String refused = "read";
        try {
            stranger.getData(root + "/mine", false, null);
        } catch (KeeperException.NoAuthException error) {
            refused = error.code().toString();
        }
        stranger.close();
        say("guarded", "refused", refused, "scheme", client.getACL(root + "/mine", new Stat()).get(0).getId().getScheme());

        // another connection takes the session over with its number and password
        create(client, root + "/kept", "", CreateMode.EPHEMERAL);
        final CountDownLatch resumed = new CountDownLatch(1);
        ZooKeeper second = new ZooKeeper(hosts, 10_000, new Watcher() {
            @Override
            public void process(WatchedEvent event) {
                if (event.getState() == Event.KeeperState.SyncConnected) {
                    resumed.countDown();
                }
            }
        }, client.getSessionId(), client.getSessionPasswd());
        boolean taken = resumed.await(30, TimeUnit.SECONDS) && second.getSessionId() == client.getSessionId();
        taken = taken && second.exists(root + "/kept", false).getEphemeralOwner() == second.getSessionId();
        second.close();
        say("resumed", "same", taken);
    }

    void delete(String path) throws Exception {
        ZooKeeper last = connect();
        last.addAuthInfo("digest", "tour:secret".getBytes("UTF-8"));
        for (String child : last.getChildren(path, false)) {
            last.delete(path + "/" + child, -1);
        }
        last.delete(path, -1);
        say("deleted", "left", last.exists(path, false) != null);
        last.close();
    }
}
