package interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Runs Redisson clients as instructed: commands on stdin, answers on stdout, one line each, words
 * separated by one space.
 *
 * <pre>
 *   command   ID connect CLIENT ADDRESS WATCHDOG_MS FAIR_WAIT_MS     (FAIR_WAIT_MS 0: its default)
 *             ADDRESS: redis://HOST:PORT, or sentinel/MASTER/ADDRESS,ADDRESS..., or
 *             cluster/ADDRESS,ADDRESS...
 *             ID shutdown CLIENT
 *             ID clock                                                (System.currentTimeMillis())
 *             ID interrupt CLIENT THREAD
 *             ID OPERATION CLIENT THREAD KIND LOCK [NUMBER...]        (see Operation; KIND: see Client)
 *   answer    ID BEGAN_NS ENDED_NS ok VALUE
 *             ID BEGAN_NS ENDED_NS failed CLASS: MESSAGE
 * </pre>
 *
 * ID is any word; the answer repeats it, because answers arrive in the order in which calls end. Times
 * are System.nanoTime(), on Linux the monotonic clock of the machine, just before and just after the
 * call. The process ends with its stdin.
 */
public final class Driver {
    private static final PrintStream OUT =
            new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);

    private final Map<String, Client> clients = new ConcurrentHashMap<>();

    private Driver() {}

    public static void main(String[] args) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var driver = new Driver();
        answer("ready", 0, 0, "ok", String.valueOf(ProcessHandle.current().pid()));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            driver.obey(line.split(" "));
        }
        // Not exit: no orderly shutdown is needed, and a stuck thread must not delay the end.
        Runtime.getRuntime().halt(0);
    }

    private void obey(String[] words) {
        String id = words[0];
        long began = System.nanoTime();
        try {
            switch (words[1]) {
                case "connect":
                    // Connecting takes a moment and would delay the next commands.
                    new Thread(() -> connect(id, words)).start();
                    break;
                case "shutdown":
                    Client gone = clients.remove(words[2]);
                    new Thread(() -> {
                        gone.shutdown();
                        answer(id, began, System.nanoTime(), "ok", "-");
                    }).start();
                    break;
                case "clock":
                    String now = String.valueOf(System.currentTimeMillis());
                    answer(id, began, System.nanoTime(), "ok", now);
                    break;
                case "interrupt":
                    client(words[2]).owner(words[3]).interrupt();
                    answer(id, began, System.nanoTime(), "ok", "-");
                    break;
                default:
                    String[] numbers = Arrays.copyOfRange(words, 6, words.length);
                    var operation = new Operation(words[1], words[4], words[5], numbers);
                    client(words[2]).owner(words[3]).run(id, operation);
            }
        } catch (RuntimeException error) {
            answer(id, began, System.nanoTime(), "failed", String.valueOf(error));
        }
    }

    private void connect(String id, String[] words) {
        long began = System.nanoTime();
        try {
            var client = new Client(words[3], Long.parseLong(words[4]), Long.parseLong(words[5]));
            clients.put(words[2], client);
            answer(id, began, System.nanoTime(), "ok", client.uuid());
        } catch (RuntimeException | ReflectiveOperationException error) {
            answer(id, began, System.nanoTime(), "failed", String.valueOf(error));
        }
    }

    private Client client(String name) {
        Client client = clients.get(name);
        if (client == null) {
            throw new IllegalArgumentException("no client " + name);
        }
        return client;
    }

    /** Prints the result of a call. */
    static void answer(String id, long beganNs, long endedNs, String outcome, String value) {
        String text = value.replace('\n', ' ').replace('\r', ' ');
        byte[] line = (id + " " + beganNs + " " + endedNs + " " + outcome + " " + text + "\n")
                .getBytes(StandardCharsets.UTF_8);
        synchronized (OUT) {
            OUT.write(line, 0, line.length);
            OUT.flush();
        }
    }
}
