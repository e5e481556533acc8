import java.util.Collections;
import java.util.List;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.Watcher.WatcherType;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/** What came with 3.5 and 3.6: containers, lifetimes, watches that stay, counts, reads in one request, members. */
public final class Later implements Tour.Part {
    @Override
    public void run(Tour tour) throws Exception {
        ZooKeeper client = tour.connect();
        String root = tour.root;
        client.addWatch(root + "/node", tour.watcher, AddWatchMode.PERSISTENT_RECURSIVE);
        tour.create(client, root + "/node/box", "", CreateMode.CONTAINER);
        String made = tour.event();
        client.delete(root + "/node/box", -1);
        String gone = tour.event();
        client.removeWatches(root + "/node", tour.watcher, WatcherType.Any, false);
        String removed = tour.event();
        Tour.say("followed", "made", made, "gone", gone, "removed", removed);

        Stat stat = new Stat();
        client.create(root + "/brief", new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, stat, 60_000);
        tour.create(client, root + "/mark", "", CreateMode.EPHEMERAL);
        List<OpResult> read = client.multi(List.of(Op.getData(root + "/node"), Op.getChildren(root)));
        String data = new String(((OpResult.GetDataResult) read.get(0)).getData(), "UTF-8");
        Tour.say("counted", "created", stat.getCzxid() > 0, "ephemerals", client.getEphemerals(root).size(),
                "all", client.getAllChildrenNumber(root), "data", data);
        String members = new String(client.getConfig(false, new Stat()), "UTF-8");
        Tour.say("configured", "members", Collections.frequency(List.of(members.replaceAll("server\\.", "server ").split("[ \n]")),
                "server"));
        client.close();
    }
}
