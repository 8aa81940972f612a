package interop;

import java.util.concurrent.TimeUnit;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;

/**
 * One call of a lock object. Numbers are milliseconds unless followed by a unit; a lease of -1 means
 * that the watchdog renews.
 *
 * <pre>
 *   id                                        the owner's id in Redis
 *   lock [LEASE]            lockAsync [LEASE]            lockInterruptibly
 *   tryLock [WAIT LEASE]    tryLockAsync [WAIT LEASE]
 *   tryLockUnit WAIT UNIT                     tryLock(wait, unit), where the unit matters
 *   unlock                  unlockAsync
 *   isLocked  isHeldByCurrentThread  holdCount  remainTimeToLive  forceUnlock
 *   trySetCount N     countDown     getCount     await [WAIT]     awaitAsync     delete    (kind latch)
 *   token     lockAndGetToken [LEASE]     tryLockAndGetToken WAIT LEASE     (fenced locks)
 * </pre>
 */
final class Operation {
    private final String name;
    private final String kind;
    private final String lock;
    private final String[] numbers;

    Operation(String name, String kind, String lock, String[] numbers) {
        this.name = name;
        this.kind = kind;
        this.lock = lock;
        this.numbers = numbers;
    }

    /** Returns its result, a future of it, or null. Called on the owner's thread. */
    Object call(Client client) throws Exception {
        long thread = Thread.currentThread().getId();
        if (name.equals("id")) {
            return client.uuid() + ":" + thread;
        }
        boolean timed = numbers.length > 0;
        if (kind.equals("latch")) {
            return latch(client.latch(lock), timed);
        }
        RLock lock = client.lock(kind, this.lock);
        switch (name) {
            case "lock":
                if (timed) {
                    lock.lock(number(0), TimeUnit.MILLISECONDS);
                } else {
                    lock.lock();
                }
                return null;
            case "lockInterruptibly":
                lock.lockInterruptibly();
                return null;
            case "lockAsync":
                return timed
                        ? lock.lockAsync(number(0), TimeUnit.MILLISECONDS, thread)
                        : lock.lockAsync(thread);
            case "tryLock":
                return timed
                        ? lock.tryLock(number(0), number(1), TimeUnit.MILLISECONDS)
                        : lock.tryLock();
            case "tryLockUnit":
                return lock.tryLock(number(0), TimeUnit.valueOf(numbers[1]));
            case "tryLockAsync":
                return timed
                        ? lock.tryLockAsync(number(0), number(1), TimeUnit.MILLISECONDS, thread)
                        : lock.tryLockAsync(thread);
            case "unlock":
                lock.unlock();
                return null;
            case "unlockAsync":
                return lock.unlockAsync(thread);
            case "isLocked":
                return lock.isLocked();
            case "isHeldByCurrentThread":
                return lock.isHeldByCurrentThread();
            case "holdCount":
                return lock.getHoldCount();
            case "remainTimeToLive":
                return lock.remainTimeToLive();
            case "forceUnlock":
                return lock.forceUnlock();
            case "token":
                return fenced(lock, "getToken");
            case "lockAndGetToken":
                return timed
                        ? fenced(lock, name, number(0), TimeUnit.MILLISECONDS)
                        : fenced(lock, name);
            case "tryLockAndGetToken":
                return fenced(lock, name, number(0), number(1), TimeUnit.MILLISECONDS);
            default:
                throw new IllegalArgumentException("no operation " + name);
        }
    }

    private Object latch(RCountDownLatch latch, boolean timed) throws InterruptedException {
        switch (name) {
            case "trySetCount":
                return latch.trySetCount(number(0));
            case "countDown":
                latch.countDown();
                return null;
            case "getCount":
                return latch.getCount();
            case "await":
                if (timed) {
                    return latch.await(number(0), TimeUnit.MILLISECONDS);
                }
                latch.await();
                return null;
            case "awaitAsync":
                return latch.awaitAsync();
            case "delete":
                return latch.delete();
            default:
                throw new IllegalArgumentException("no operation " + name);
        }
    }

    private long number(int at) {
        return Long.parseLong(numbers[at]);
    }

    /** Fenced locks exist since 3.19. */
    private static Object fenced(RLock lock, String method, Object... args) throws Exception {
        Class<?> fenced = Class.forName("org.redisson.api.RFencedLock");
        Class<?>[] types = new Class<?>[args.length];
        for (int at = 0; at < args.length; at++) {
            types[at] = args[at] instanceof Long ? long.class : TimeUnit.class;
        }
        return fenced.getMethod(method, types).invoke(lock, args);
    }
}
