import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryForever;
import org.apache.curator.utils.ZookeeperFactory;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.HostProvider;
import org.apache.zookeeper.data.Stat;

/**
 * Curator's recipes, three participants each, one at every node; the test kills the leader in the middle.
 *
 * Arguments: three connect strings; a client begins with the first server of its own. Every recipe works
 * before the word "killed" is read, while the leader changes, and after it. What each participant saw is
 * printed as lines of JSON; the test decides whether it is right. Times are nanoseconds of one clock, since
 * all participants live in this process.
 */
public class CuratorRecipes {
    static final int SESSION_TIMEOUT_MS = 10_000;
    static final int WAIT_S = 40;
    static final ObjectMapper JSON = new ObjectMapper();
    static final List<CuratorFramework> clients = new ArrayList<>();
    static final AtomicBoolean finishing = new AtomicBoolean();
    static final Map<Integer, AtomicInteger> losses = new TreeMap<>();
    static final ExecutorService threads = Executors.newCachedThreadPool();
    static final BufferedReader words = new BufferedReader(new InputStreamReader(System.in));

    /** What a participant does again and again; the number of rounds so far is passed. */
    interface Round {
        void run(int number) throws Exception;
    }

    /** Prints one line: {"event": event, key: value, ...}. */
    static synchronized void say(String event, Object... pairs) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        for (int i = 0; i < pairs.length; i += 2) {
            line.put((String) pairs[i], pairs[i + 1]);
        }
        System.out.println(JSON.writeValueAsString(line));
    }

    /** Servers in the given order, beginning with the first: Curator's own provider shuffles them. */
    static class InOrder implements HostProvider {
        private final List<InetSocketAddress> servers = new ArrayList<>();
        private int next;
        private int sinceConnected;

        InOrder(String hosts) {
            for (String host : hosts.split(",")) {
                String[] parts = host.split(":");
                servers.add(new InetSocketAddress(parts[0], Integer.parseInt(parts[1])));
            }
        }

        @Override
        public int size() {
            return servers.size();
        }

        @Override
        public InetSocketAddress next(long spinDelay) {
            if (sinceConnected++ >= servers.size()) {
                try {
                    TimeUnit.MILLISECONDS.sleep(Math.min(spinDelay, 100));
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                }
            }
            return servers.get(next++ % servers.size());
        }

        @Override
        public void onConnected() {
            sinceConnected = 0;
        }

        @Override
        public boolean updateServerList(Collection<InetSocketAddress> addresses, InetSocketAddress current) {
            return false;
        }
    }

    static CuratorFramework connect(int number, String hosts) throws Exception {
        ZookeeperFactory factory = (connect, timeout, watcher, readOnly) ->
                new ZooKeeper(connect, timeout, watcher, readOnly, new InOrder(connect));
        CuratorFramework client = CuratorFrameworkFactory.builder()
                .connectString(hosts)
                .sessionTimeoutMs(SESSION_TIMEOUT_MS)
                .connectionTimeoutMs(SESSION_TIMEOUT_MS)
                .retryPolicy(new RetryForever(50))
                .zookeeperFactory(factory)
                .build();
        AtomicInteger lost = new AtomicInteger();
        losses.put(number, lost);
        client.getConnectionStateListenable().addListener((self, state) -> {
            if (state == ConnectionState.SUSPENDED) {
                lost.incrementAndGet();
            }
        });
        client.start();
        if (!client.blockUntilConnected(WAIT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not connected: " + hosts);
        }
        return client;
    }

    static Future<Void> repeat(int rounds, Round round) {
        return threads.submit((Callable<Void>) () -> {
            for (int number = 0; number < rounds || !finishing.get(); number++) {
                round.run(number);
            }
            return null;
        });
    }

    static void await(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (!condition.call()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not in time: " + what);
            }
            TimeUnit.MILLISECONDS.sleep(20);
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** InterProcessMutex: one line per time inside. */
    static List<Future<Void>> mutex(CountDownLatch warm) {
        List<Future<Void>> running = new ArrayList<>();
        for (int i = 0; i < clients.size(); i++) {
            int client = i;
            InterProcessMutex lock = new InterProcessMutex(clients.get(i), "/mutex");
            running.add(repeat(10, number -> {
                lock.acquire();
                long from = System.nanoTime();
                // long enough for whoever should not come in
                TimeUnit.MILLISECONDS.sleep(10);
                say("mutex", "client", client, "from", from, "to", System.nanoTime());
                lock.release();
                // how many contend changes all the time
                TimeUnit.MILLISECONDS.sleep(number * (client + 3) % 5 * 10);
                if (number == 5) {
                    warm.countDown();
                }
            }));
        }
        return running;
    }

    /** SharedCount: additions of one, told apart by whether they are known to have happened. */
    static List<Future<Void>> count(List<SharedCount> counts, AtomicInteger added, CountDownLatch warm) {
        List<Future<Void>> running = new ArrayList<>();
        for (SharedCount count : counts) {
            running.add(repeat(20, number -> {
                VersionedValue<Integer> seen = count.getVersionedValue();
                if (count.trySetCount(seen, seen.getValue() + 1)) {
                    added.incrementAndGet();
                }
                if (number == 10) {
                    warm.countDown();
                }
                TimeUnit.MILLISECONDS.sleep(3);
            }));
        }
        return running;
    }

    /** LeaderLatch: one line when a participant becomes leader and one when it ceases to be. */
    static List<LeaderLatch> latches() throws Exception {
        List<LeaderLatch> latches = new ArrayList<>();
        for (int i = 0; i < clients.size(); i++) {
            int client = i;
            LeaderLatch latch = new LeaderLatch(clients.get(i), "/latch", "p" + i);
            latch.addListener(new LeaderLatchListener() {
                @Override
                public void isLeader() {
                    note("leads", client);
                }

                @Override
                public void notLeader() {
                    note("follows", client);
                }
            });
            latch.start();
            latches.add(latch);
        }
        return latches;
    }

    static void note(String event, int client) {
        try {
            say(event, "client", client, "at", System.nanoTime());
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static LeaderLatch leading(List<LeaderLatch> latches) throws Exception {
        LeaderLatch[] found = new LeaderLatch[1];
        await("a latch leads", () -> {
            for (LeaderLatch latch : latches) {
                if (latch.getState() == LeaderLatch.State.STARTED && latch.hasLeadership()) {
                    found[0] = latch;
                }
            }
            return found[0] != null;
        });
        return found[0];
    }

    /** What the caches watch: creates, changes and deletes, by one client, all the time. */
    static Future<Void> change(CountDownLatch warm) {
        CuratorFramework client = clients.get(0);
        return repeat(40, number -> {
            String path = String.format("/cached/%d/%03d", number % 4, number);
            client.create().orSetData().creatingParentsIfNeeded().forPath(path, bytes("new"));
            client.setData().forPath(path, bytes("value " + number));
            if (number % 3 == 2) {
                client.delete().quietly().forPath(path);
            }
            if (number == 12) {
                warm.countDown();
            }
        });
    }

    static void readTree(CuratorFramework client, String path, Map<String, String> into) throws Exception {
        Stat stat = new Stat();
        byte[] value = client.getData().storingStatIn(stat).forPath(path);
        into.put(path, new String(value, StandardCharsets.UTF_8) + " @" + stat.getMzxid());
        for (String child : client.getChildren().forPath(path)) {
            readTree(client, path + "/" + child, into);
        }
    }

    static void put(Map<String, String> into, ChildData node) {
        String text = new String(node.getData(), StandardCharsets.UTF_8);
        into.put(node.getPath(), text + " @" + node.getStat().getMzxid());
    }

    static void putAll(TreeCache cache, String path, Map<String, String> into) {
        ChildData node = cache.getCurrentData(path);
        if (node != null) {
            put(into, node);
            Map<String, ChildData> children = cache.getCurrentChildren(path);
            for (String child : children == null ? Collections.<String>emptySet() : children.keySet()) {
                putAll(cache, path + "/" + child, into);
            }
        }
    }

    /** CuratorCache (persistent watches) and TreeCache (one-shot ones) come to hold what the tree holds. */
    static void compareCaches(List<CuratorCache> caches, TreeCache treeCache) throws Exception {
        Map<String, String> tree = new TreeMap<>();
        clients.get(0).sync().forPath("/cached");
        readTree(clients.get(0), "/cached", tree);
        for (int i = 0; i < caches.size(); i++) {
            CuratorCache cache = caches.get(i);
            Map<String, String> seen = new TreeMap<>();
            holds(tree, seen, () -> cache.stream().forEach(node -> put(seen, node)));
            say("cache", "kind", "CuratorCache", "client", i, "tree", tree, "seen", seen);
        }
        Map<String, String> seen = new TreeMap<>();
        holds(tree, seen, () -> putAll(treeCache, "/cached", seen));
        say("cache", "kind", "TreeCache", "client", 2, "tree", tree, "seen", seen);
    }

    /** Waits until what was seen is the tree; if that never comes, the last that was seen stays there. */
    static void holds(Map<String, String> tree, Map<String, String> seen, Runnable look) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        do {
            seen.clear();
            look.run();
            TimeUnit.MILLISECONDS.sleep(20);
        } while (!seen.equals(tree) && System.nanoTime() < deadline);
    }

    /** DistributedBarrier: two wait at other nodes than the one that removes it. */
    static List<Future<Integer>> waiters(AtomicInteger passed) throws Exception {
        new DistributedBarrier(clients.get(0), "/barrier").setBarrier();
        List<Future<Integer>> waiting = new ArrayList<>();
        for (CuratorFramework client : clients) {
            client.sync().forPath("/barrier");
            waiting.add(threads.submit(() -> {
                // without a limit: one with a limit looks once more when its time is up
                new DistributedBarrier(client, "/barrier").waitOnBarrier();
                return passed.incrementAndGet();
            }));
        }
        return waiting;
    }

    /** PersistentNode: its session is ended from elsewhere, with id and password; it must come again. */
    static void killSession(PersistentNode node, String hosts) throws Exception {
        CuratorFramework client = clients.get(1);
        ZooKeeper own = client.getZookeeperClient().getZooKeeper();
        Stat before = client.checkExists().forPath(node.getActualPath());
        long killed = own.getSessionId();
        CountDownLatch connected = new CountDownLatch(1);
        Watcher watcher = event -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                connected.countDown();
            }
        };
        ZooKeeper other = new ZooKeeper(hosts, SESSION_TIMEOUT_MS, watcher, killed, own.getSessionPasswd());
        boolean resumed = connected.await(WAIT_S, TimeUnit.SECONDS);
        other.close();
        Stat[] after = new Stat[1];
        await("the persistent node is there again", () -> {
            clients.get(2).sync().forPath("/");
            after[0] = clients.get(2).checkExists().forPath("/persistent");
            return after[0] != null && after[0].getEphemeralOwner() != killed;
        });
        say("persistent", "resumed", resumed, "killed", killed,
                "before", before.getEphemeralOwner(), "after", after[0].getEphemeralOwner(),
                "session", client.getZookeeperClient().getZooKeeper().getSessionId(),
                "data", new String(clients.get(2).getData().forPath("/persistent"), StandardCharsets.UTF_8));
    }

    static void expect(String word) throws Exception {
        String line = words.readLine();
        if (!word.equals(line)) {
            throw new IllegalStateException("expected " + word + ", not " + line);
        }
    }

    static PersistentNode persistent() throws Exception {
        PersistentNode node =
                new PersistentNode(clients.get(1), CreateMode.EPHEMERAL, false, "/persistent", bytes("here"));
        node.start();
        if (!node.waitForInitialCreate(WAIT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no persistent node");
        }
        return node;
    }

    static List<SharedCount> counts() throws Exception {
        List<SharedCount> counts = new ArrayList<>();
        for (CuratorFramework client : clients) {
            SharedCount count = new SharedCount(client, "/count", 0);
            count.start();
            counts.add(count);
        }
        return counts;
    }

    static void finishCount(List<SharedCount> counts, AtomicInteger added) throws Exception {
        clients.get(0).sync().forPath("/count");
        byte[] stored = clients.get(0).getData().forPath("/count");
        int total = java.nio.ByteBuffer.wrap(stored).getInt();
        List<Integer> seen = new ArrayList<>();
        for (SharedCount count : counts) {
            await("all see the total", () -> count.getCount() == total);
            seen.add(count.getCount());
        }
        int unknown = losses.values().stream().mapToInt(AtomicInteger::get).sum();
        say("count", "added", added.get(), "total", total, "seen", seen, "unknown", unknown);
    }

    public static void main(String[] hosts) throws Exception {
        for (int i = 0; i < hosts.length; i++) {
            clients.add(connect(i, hosts[i]));
        }
        CountDownLatch warm = new CountDownLatch(7);
        List<LeaderLatch> latches = latches();
        List<SharedCount> counts = counts();
        AtomicInteger added = new AtomicInteger();
        AtomicInteger passed = new AtomicInteger();
        PersistentNode node = persistent();
        List<Future<Integer>> waiting = waiters(passed);
        clients.get(0).create().orSetData().forPath("/cached", bytes("top"));
        List<CuratorCache> caches = new ArrayList<>();
        for (CuratorFramework client : clients) {
            caches.add(CuratorCache.build(client, "/cached"));
        }
        caches.forEach(CuratorCache::start);
        TreeCache treeCache = new TreeCache(clients.get(2), "/cached");
        treeCache.start();
        List<Future<Void>> running = new ArrayList<>(mutex(warm));
        running.addAll(count(counts, added, warm));
        running.add(change(warm));
        LeaderLatch first = leading(latches);
        if (!warm.await(WAIT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no progress");
        }
        say("midway", "leads", first.getId());
        expect("killed");
        finishing.set(true);
        for (Future<Void> participant : running) {
            participant.get(WAIT_S, TimeUnit.SECONDS);
        }
        finishCount(counts, added);
        compareCaches(caches, treeCache);
        int early = passed.get();
        new DistributedBarrier(clients.get(2), "/barrier").removeBarrier();
        for (Future<Integer> waiter : waiting) {
            waiter.get(WAIT_S, TimeUnit.SECONDS);
        }
        say("barrier", "early", early, "released", passed.get());
        for (int i = 0; i < latches.size(); i++) {
            LeaderLatch leader = leading(latches);
            say("elected", "client", latches.indexOf(leader));
            note("follows", latches.indexOf(leader));
            leader.close(LeaderLatch.CloseMode.NOTIFY_LEADER);
        }
        killSession(node, hosts[0]);
        say("end", "losses", losses);
        Runtime.getRuntime().halt(0);
    }
}
