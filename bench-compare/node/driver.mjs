// `driver.mjs redlock|semaphore URL`: node-redlock and redis-semaphore on ioredis. The protocol is in ../README.md.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { Semaphore } from "redis-semaphore";

// Its entry for `import` says nothing of the types of its files; this one is what its users end up with.
const require = createRequire(import.meta.url);
const { default: Redlock } = require("redlock");

const LEASE_MS = 30_000;
const AT_ONCE = 64;
// Errors in a circle would be all that is measured.
const AFTER_ERROR_MS = 10;

const [kind, url] = process.argv.slice(2);
const client = new Redis(url);
// Its own pause between tries (200 ms and up to 100 ms more or less), but as many as it takes.
const redlock = new Redlock([client], { retryCount: -1 });
// A refusal comes as an error and as an event; nobody listens to the event.
redlock.on("error", () => {});

const now = () => process.hrtime.bigint();
const say = (answer) => process.stdout.write(answer + "\n");
const kept = [];
let run = newRun({});
// Tasks that have not come to their end, of all runs of this process.
let left = 0;

function newRun(words) {
  return { words, over: false, rows: [], gaveUp: [], errors: 0, error: "" };
}

// What a task takes, turn after turn: `acquire` resolves to false if it is refused.
const wanted = {
  redlock(name, waitMs) {
    // How it bounds a wait: by tries. One more after a pause of up to the wait.
    const settings = waitMs ? { retryCount: 1, retryDelay: waitMs / 2, retryJitter: waitMs / 2 } : {};
    let lock;
    return {
      acquire: async () => {
        try {
          lock = await redlock.acquire([name], LEASE_MS, settings);
          return true;
        } catch (error) {
          if (waitMs && error.name === "ExecutionError") return false;
          throw error;
        }
      },
      release: () => lock.release(),
    };
  },
  semaphore(name, waitMs, permits) {
    // Its own pause between tries, 10 ms, but as many as it takes.
    const settings = { lockTimeout: LEASE_MS, acquireTimeout: waitMs || Infinity };
    const semaphore = new Semaphore(client, name, permits, settings);
    return { acquire: () => semaphore.tryAcquire(), release: () => semaphore.release() };
  },
}[kind];

async function turns(run, task) {
  const { name, locks, wait_ms: wait, hold_ms: hold, counter } = run.words;
  const own = wanted(`${name}:${task % Math.max(1, locks)}`, Number(wait), Number(run.words.permits ?? 1));
  while (!run.over) {
    const asked = now();
    try {
      if (!(await own.acquire())) {
        run.gaveUp.push(now() - asked);
        continue;
      }
    } catch (error) {
      failed(run, error);
      await sleep(AFTER_ERROR_MS);
      continue;
    }
    const acquired = now();
    try {
      if (counter !== "-") await client.set(counter, Number((await client.get(counter)) ?? 0) + 1);
      if (Number(hold)) await sleep(Number(hold));
    } catch (error) {
      failed(run, error);
    }
    const releasing = now();
    try {
      await own.release();
    } catch (error) {
      failed(run, error);
    }
    run.rows.push(task, asked, acquired, releasing, now());
  }
}

function failed(run, error) {
  run.errors += 1;
  run.error ||= String(error);
}

// How each keeps what it has taken: redlock by an auto-extending `using`, a semaphore by itself.
const keep = {
  redlock: (name) =>
    new Promise((taken, failed) => {
      const routine = () => {
        taken();
        return new Promise(() => {});
      };
      redlock.using([name], LEASE_MS, routine).catch(failed);
    }),
  semaphore: (name) => wanted(name, 0, 1).acquire(),
}[kind];

async function hold({ name, locks }) {
  let next = 0;
  let error = "";
  const one = async () => {
    while (next < locks && !error) {
      const own = `${name}:${next++}`;
      try {
        await keep(own);
        kept.push(own);
      } catch (reason) {
        error ||= String(reason);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
  return { held: kept.length, error };
}

async function obey(line) {
  const [verb, ...pairs] = line.split(" ");
  const words = Object.fromEntries(pairs.map((pair) => pair.split("=", 2)));
  if (verb === "run") {
    run = newRun(words);
    const first = Number(words.first);
    left += Number(words.tasks);
    for (let task = first; task < first + Number(words.tasks); task++) turns(run, task).then(() => left--);
    say(`{"running":${words.tasks}}`);
  } else if (verb === "hold") {
    say(JSON.stringify(await hold(words)));
  } else if (verb === "left") {
    say(`{"left":${left}}`);
  } else if (verb === "stop") {
    run.over = true;
    const { rows, gaveUp, errors, error } = run;
    // Bigints, which JSON.stringify refuses.
    say(`{"rows":[${rows}],"gave_up":[${gaveUp}],"errors":${errors},"error":${JSON.stringify(error)}}`);
  }
}

const version = (name) =>
  JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version.replace(/^v/, "");

await client.ping();
const runsOn = `Node ${process.versions.node}, ioredis ${version("ioredis")}`;
const used = { redlock: "redlock", semaphore: "redis-semaphore" }[kind];
say(JSON.stringify({ hello: { version: version(used), runs_on: runsOn, renews: true } }));
const lines = createInterface({ input: process.stdin });
lines.on("line", obey);
lines.on("close", () => process.exit(0));
