import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.ACLProvider;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.client.ZKClientConfig;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;

/**
 * Curator by TLS with certificates, and by SASL DIGEST-MD5: what it makes is for two subjects and one user alone.
 *
 * <p>Arguments: addresses of TLS, addresses without, the authority, and files with key and certificate of alice, bob and mallory.
 * Alice and bob take turns in a mutex and a latch; mallory tries both. Prints lines of JSON.
 */
public final class SecuredCurator {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int WAIT_S = 30;
    static final int ROUNDS = 10;
    /** What everything that is made gets. */
    static final List<ACL> OWN = java.util.Arrays.asList(
        new ACL(ZooDefs.Perms.ALL, new Id("x509", "CN=alice")),
        new ACL(ZooDefs.Perms.ALL, new Id("x509", "CN=bob")),
        new ACL(ZooDefs.Perms.READ, new Id("sasl", "alice")));

    private SecuredCurator() {}

    static synchronized void say(String event, Object... pairs) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        for (int i = 0; i < pairs.length; i += 2) {
            line.put((String) pairs[i], pairs[i + 1]);
        }
        System.out.println(JSON.writeValueAsString(line));
    }

    static CuratorFramework connect(String hosts, ZKClientConfig config) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder()
            .connectString(hosts)
            .sessionTimeoutMs(10_000)
            .retryPolicy(new RetryOneTime(100))
            .zkClientConfig(config)
            .aclProvider(new ACLProvider() {
                @Override
                public List<ACL> getDefaultAcl() {
                    return OWN;
                }

                @Override
                public List<ACL> getAclForPath(String path) {
                    return OWN;
                }
            })
            .build();
        client.start();
        if (!client.blockUntilConnected(WAIT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not connected to " + hosts);
        }
        return client;
    }

    static CuratorFramework byCertificate(String hosts, String authority, String file) throws Exception {
        ZKClientConfig config = new ZKClientConfig();
        config.setProperty("zookeeper.client.secure", "true");
        config.setProperty("zookeeper.clientCnxnSocket", "org.apache.zookeeper.ClientCnxnSocketNetty");
        config.setProperty("zookeeper.ssl.keyStore.location", file);
        config.setProperty("zookeeper.ssl.trustStore.location", authority);
        config.setProperty("zookeeper.sasl.client", "false");
        return connect(hosts, config);
    }

    static Thread inTurn(String name, CuratorFramework client) {
        Thread made = new Thread(() -> {
            try {
                InterProcessMutex mutex = new InterProcessMutex(client, "/curator/mutex");
                for (int round = 0; round < ROUNDS; round++) {
                    if (!mutex.acquire(WAIT_S, TimeUnit.SECONDS)) {
                        throw new IllegalStateException("no turn");
                    }
                    long from = System.nanoTime();
                    client.checkExists().forPath("/curator");
                    say("mutex", "who", name, "from", from, "to", System.nanoTime());
                    mutex.release();
                }
            } catch (Exception error) {
                error.printStackTrace();
            }
        });
        made.start();
        return made;
    }

    static String refusal(java.util.concurrent.Callable<?> attempt) throws Exception {
        try {
            attempt.call();
            return "";
        } catch (KeeperException error) {
            return error.code().name();
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<CuratorFramework> clients = new ArrayList<>();
        for (int index = 3; index < 6; index++) {
            clients.add(byCertificate(arguments[0], arguments[2], arguments[index]));
        }
        CuratorFramework alice = clients.get(0);
        CuratorFramework bob = clients.get(1);
        CuratorFramework mallory = clients.get(2);
        alice.create().forPath("/curator", "v".getBytes());
        List<Thread> running = List.of(inTurn("alice", alice), inTurn("bob", bob));
        for (Thread each : running) {
            each.join();
        }
        LeaderLatch first = new LeaderLatch(alice, "/curator/latch", "alice");
        LeaderLatch second = new LeaderLatch(bob, "/curator/latch", "bob");
        first.start();
        first.await(WAIT_S, TimeUnit.SECONDS);
        second.start();
        say("latch", "leader", second.getLeader().getId(), "both", second.hasLeadership());
        first.close();
        second.await(WAIT_S, TimeUnit.SECONDS);
        say("latch", "leader", second.getLeader().getId(), "both", !second.hasLeadership());
        say("mallory", "read", refusal(() -> mallory.getData().forPath("/curator")),
            "mutex", refusal(() -> new InterProcessMutex(mallory, "/curator/mutex").acquire(1, TimeUnit.SECONDS)));
        CuratorFramework user = connect(arguments[1], new ZKClientConfig());
        say("user", "read", refusal(() -> user.getData().forPath("/curator")),
            "write", refusal(() -> user.setData().forPath("/curator")));
        say("end");
        System.exit(0);
    }
}
