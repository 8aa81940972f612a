package interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.redisson.Redisson;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.Config;

/** One Redisson client, with its owners and its lock objects. */
final class Client {
    /** Enough for every waiter of a test: each fair waiter has its own channel. */
    private static final int SUBSCRIPTIONS_PER_CONNECTION = 100;

    private final RedissonClient redisson;
    private final Map<String, Owner> owners = new ConcurrentHashMap<>();
    /** Kept like in an application: a lock object remembers the lease that it used last. */
    private final Map<String, RLock> locks = new ConcurrentHashMap<>();

    Client(String address, long watchdogMs, long fairWaitMs) throws ReflectiveOperationException {
        var config = new Config();
        config.setLockWatchdogTimeout(watchdogMs);
        // Since 3.46.
        if (fairWaitMs > 0) {
            Config.class.getMethod("setFairLockWaitTimeout", long.class).invoke(config, fairWaitMs);
        }
        // Locks use their own codec; this one loads the fewest classes.
        config.setCodec(StringCodec.INSTANCE);
        config.setThreads(4);
        config.setNettyThreads(4);
        String[] place = address.split("/", 2);
        switch (place[0]) {
            case "sentinel":
                String[] masterAndSentinels = place[1].split("/", 2);
                few(config.useSentinelServers()
                        .setMasterName(masterAndSentinels[0])
                        .addSentinelAddress(masterAndSentinels[1].split(",")));
                break;
            case "cluster":
                few(config.useClusterServers().addNodeAddress(place[1].split(",")));
                break;
            default:
                config.useSingleServer()
                        .setAddress(address)
                        .setConnectionMinimumIdleSize(2)
                        .setSubscriptionConnectionMinimumIdleSize(1)
                        .setSubscriptionsPerConnection(SUBSCRIPTIONS_PER_CONNECTION);
        }
        redisson = Redisson.create(config);
    }

    /** By default every node would get two dozen connections. */
    private static void few(BaseMasterSlaveServersConfig<?> servers) {
        servers.setMasterConnectionMinimumIdleSize(2);
        servers.setSlaveConnectionMinimumIdleSize(1);
        servers.setSubscriptionConnectionMinimumIdleSize(1);
        servers.setSubscriptionsPerConnection(SUBSCRIPTIONS_PER_CONNECTION);
    }

    /** The first part of its owners' ids. */
    String uuid() {
        return redisson.getId();
    }

    Owner owner(String name) {
        return owners.computeIfAbsent(name, made -> new Owner(this, made));
    }

    /** A kind may be followed by "#" and any word: each word has a separate object. */
    RLock lock(String kind, String name) {
        return locks.computeIfAbsent(kind + " " + name, made -> make(kind.split("#")[0], name));
    }

    RCountDownLatch latch(String name) {
        return redisson.getCountDownLatch(name);
    }

    /** Kinds that some versions lack are looked up by name. */
    private RLock make(String kind, String name) {
        switch (kind) {
            case "plain":
                return redisson.getLock(name);
            case "fair":
                return redisson.getFairLock(name);
            case "spin":
                return redisson.getSpinLock(name);
            case "read":
                return redisson.getReadWriteLock(name).readLock();
            case "write":
                return redisson.getReadWriteLock(name).writeLock();
            case "fenced":
                return made("getFencedLock", name);
            case "nonreentrant":
                return made("getNonReentrantLock", name);
            case "nonreentrant-fair":
                return made("getNonReentrantFairLock", name);
            default:
                throw new IllegalArgumentException("no kind " + kind);
        }
    }

    private RLock made(String factory, String name) {
        try {
            var method = RedissonClient.class.getMethod(factory, String.class);
            return (RLock) method.invoke(redisson, name);
        } catch (ReflectiveOperationException error) {
            throw new UnsupportedOperationException(factory, error);
        }
    }

    void shutdown() {
        redisson.shutdown();
    }
}
