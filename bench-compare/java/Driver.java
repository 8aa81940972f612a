import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.LongCodec;
import org.redisson.config.Config;

/**
 * {@code Driver fair|plain|rw|semaphore|permits URL}: Redisson's locks, a thread for each task, as its users
 * write them. The protocol is in ../README.md.
 */
public final class Driver {
    private static final int AT_ONCE = 64;
    /** Of a permit that ends; what renews itself has the same by default. */
    private static final long LEASE_MS = 30_000;
    private static final long AFTER_ERROR_NS = 10_000_000;
    /** Fair waiters have a channel each; with the default of 5 they run out of places beyond 250. */
    private static final int SUBSCRIPTIONS_PER_CONNECTION = 500;
    private static final PrintStream OUT =
            new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);

    /** Tasks that have not come to their end, of all runs of this process. */
    private static final AtomicLong LEFT = new AtomicLong();

    private final RedissonClient redisson;
    private final String kind;
    private Run current;

    private Driver(String kind, String url) {
        this.kind = kind;
        var config = new Config();
        config.useSingleServer()
                .setAddress(url.replaceAll("/$", ""))
                .setSubscriptionsPerConnection(SUBSCRIPTIONS_PER_CONNECTION);
        redisson = Redisson.create(config);
    }

    public static void main(String[] args) throws Exception {
        var driver = new Driver(args[0], args[1]);
        driver.redisson.getKeys().count();
        String file = Redisson.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        String version = file.replaceAll(".*redisson-|\\.jar$", "");
        say("{\"hello\":{\"version\":\"" + version + "\",\"runs_on\":\"Java "
                + System.getProperty("java.version") + "\",\"renews\":" + driver.renews() + "}}");
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            driver.obey(line.split(" "));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void say(String line) {
        OUT.println(line);
        OUT.flush();
    }

    /** What one task takes, turn after turn. */
    private interface Wanted {
        /** Waits, for at most {@code waitMs} unless that is 0. Returns whether it is had. */
        boolean acquire(long waitMs) throws InterruptedException;

        void release();
    }

    private Wanted wanted(String name, boolean reads, int permits) {
        switch (kind) {
            case "fair":
                return wanted(redisson.getFairLock(name));
            case "plain":
                return wanted(redisson.getLock(name));
            case "rw":
                var both = redisson.getReadWriteLock(name);
                return wanted(reads ? both.readLock() : both.writeLock());
            case "semaphore":
                return wanted(redisson.getSemaphore(name), permits);
            case "permits":
                return wanted(redisson.getPermitExpirableSemaphore(name), permits);
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static Wanted wanted(RLock lock) {
        return new Wanted() {
            @Override
            public boolean acquire(long waitMs) throws InterruptedException {
                if (waitMs > 0) {
                    return lock.tryLock(waitMs, TimeUnit.MILLISECONDS);
                }
                lock.lock();
                return true;
            }

            @Override
            public void release() {
                lock.unlock();
            }
        };
    }

    /** The first to set the permits does so; it has no lease. */
    private static Wanted wanted(RSemaphore semaphore, int permits) {
        semaphore.trySetPermits(permits);
        return new Wanted() {
            @Override
            public boolean acquire(long waitMs) throws InterruptedException {
                if (waitMs > 0) {
                    return semaphore.tryAcquire(Duration.ofMillis(waitMs));
                }
                semaphore.acquire();
                return true;
            }

            @Override
            public void release() {
                semaphore.release();
            }
        };
    }

    private static Wanted wanted(RPermitExpirableSemaphore semaphore, int permits) {
        semaphore.trySetPermits(permits);
        return new Wanted() {
            private String id;

            @Override
            public boolean acquire(long waitMs) throws InterruptedException {
                id = waitMs > 0
                        ? semaphore.tryAcquire(waitMs, LEASE_MS, TimeUnit.MILLISECONDS)
                        : semaphore.acquire(LEASE_MS, TimeUnit.MILLISECONDS);
                return id != null;
            }

            @Override
            public void release() {
                semaphore.release(id);
            }
        };
    }

    private boolean renews() {
        return !kind.equals("semaphore") && !kind.equals("permits");
    }

    private void obey(String[] line) throws Exception {
        Map<String, String> words = new HashMap<>();
        for (int at = 1; at < line.length; at++) {
            String[] pair = line[at].split("=", 2);
            words.put(pair[0], pair[1]);
        }
        switch (line[0]) {
            case "run":
                current = new Run(words);
                current.start();
                say("{\"running\":" + words.get("tasks") + "}");
                break;
            case "hold":
                hold(words.get("name"), Integer.parseInt(words.get("locks")));
                break;
            case "stop":
                say(current == null ? new Run(words).answer() : current.answer());
                break;
            case "left":
                say("{\"left\":" + LEFT.get() + "}");
                break;
            default:
                throw new IllegalArgumentException(line[0]);
        }
    }

    /** The threads live on, as owners of what they have taken. */
    private void hold(String name, int locks) throws Exception {
        var threads = Executors.newFixedThreadPool(AT_ONCE);
        List<Future<?>> all = new ArrayList<>();
        for (int number = 0; number < locks; number++) {
            String own = name + ":" + number;
            all.add(threads.submit(() -> wanted(own, false, 1).acquire(0)));
        }
        int held = 0;
        String error = "";
        for (Future<?> one : all) {
            try {
                one.get();
                held++;
            } catch (Exception failure) {
                error = plain(failure);
            }
        }
        say("{\"held\":" + held + ",\"error\":\"" + error + "\"}");
    }

    private static String plain(Throwable error) {
        return error.toString().replaceAll("[^ !#-\\[\\]-~]", " ");
    }

    /** One {@code run}: its numbers, and what its tasks have seen. */
    private final class Run {
        private final Map<String, String> words;
        private final StringBuilder rows = new StringBuilder();
        private final StringBuilder gaveUp = new StringBuilder();
        private volatile boolean over;
        private long errors;
        private String error = "";

        Run(Map<String, String> words) {
            this.words = words;
        }

        private long number(String key) {
            return Long.parseLong(words.getOrDefault(key, "0"));
        }

        void start() {
            long first = number("first");
            for (long task = first; task < first + number("tasks"); task++) {
                long own = task;
                LEFT.incrementAndGet();
                var thread = new Thread(() -> {
                    turns(own);
                    LEFT.decrementAndGet();
                });
                thread.setDaemon(true);
                thread.start();
            }
        }

        private void turns(long task) {
            String name = words.get("name") + ":" + task % Math.max(1, number("locks"));
            boolean reads = task % 100 < number("readers");
            Wanted wanted = wanted(name, reads, (int) Math.max(1, number("permits")));
            long waitMs = number("wait_ms");
            long holdMs = number("hold_ms");
            RBucket<Long> counter = words.get("counter").equals("-")
                    ? null
                    : redisson.getBucket(words.get("counter"), LongCodec.INSTANCE);
            while (!over) {
                try {
                    long asked = System.nanoTime();
                    if (!wanted.acquire(waitMs)) {
                        append(gaveUp, System.nanoTime() - asked);
                        continue;
                    }
                    long acquired = System.nanoTime();
                    if (counter != null) {
                        Long read = counter.get();
                        counter.set(read == null ? 1 : read + 1);
                    }
                    if (holdMs > 0) {
                        Thread.sleep(holdMs);
                    }
                    long releasing = System.nanoTime();
                    wanted.release();
                    append(rows, task, asked, acquired, releasing, System.nanoTime());
                } catch (Exception failure) {
                    synchronized (this) {
                        errors++;
                        error = error.isEmpty() ? plain(failure) : error;
                    }
                    // Errors in a circle would be all that is measured.
                    LockSupport.parkNanos(AFTER_ERROR_NS);
                }
            }
        }

        private synchronized void append(StringBuilder list, long... numbers) {
            for (long number : numbers) {
                list.append(list.length() == 0 ? "" : ",").append(number);
            }
        }

        synchronized String answer() {
            over = true;
            return "{\"rows\":[" + rows + "],\"gave_up\":[" + gaveUp + "],\"errors\":" + errors
                    + ",\"error\":\"" + error + "\"}";
        }
    }
}
