package interop;

import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** A Java thread, which is what owns a lock in Redisson. Its calls run one after another. */
final class Owner {
    private final Client client;
    private final ExecutorService calls;
    private volatile Thread thread;

    Owner(Client client, String name) {
        this.client = client;
        calls = Executors.newSingleThreadExecutor(work -> {
            thread = new Thread(work, name);
            thread.setDaemon(true);
            return thread;
        });
    }

    /** Queues the call, and answers when it has ended. An asynchronous call does not block the thread. */
    void run(String id, Operation operation) {
        calls.execute(() -> {
            long began = System.nanoTime();
            try {
                Object result = operation.call(client);
                if (result instanceof CompletionStage) {
                    ((CompletionStage<?>) result)
                            .whenComplete((value, error) -> answer(id, began, value, error));
                } else {
                    answer(id, began, result, null);
                }
            } catch (Exception error) {
                answer(id, began, null, error);
            }
        });
    }

    /** Interrupts the call in progress. */
    void interrupt() {
        thread.interrupt();
    }

    private static void answer(String id, long began, Object value, Throwable error) {
        long ended = System.nanoTime();
        if (error == null) {
            Driver.answer(id, began, ended, "ok", value == null ? "-" : value.toString());
        } else {
            Driver.answer(id, began, ended, "failed", cause(error).toString());
        }
    }

    /** Unwraps the exceptions of reflection and futures. */
    private static Throwable cause(Throwable error) {
        boolean wraps = error instanceof java.lang.reflect.InvocationTargetException
                || error instanceof java.util.concurrent.CompletionException;
        return wraps && error.getCause() != null ? error.getCause() : error;
    }
}
