// `driver.mjs URL`: node-redlock on ioredis. The protocol is in ../README.md.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";

// Its entry for `import` says nothing of the types of its files; this one is what its users end up with.
const require = createRequire(import.meta.url);
const { default: Redlock } = require("redlock");

const LEASE_MS = 30_000;
const AT_ONCE = 64;
// Errors in a circle would be all that is measured.
const AFTER_ERROR_MS = 10;

const client = new Redis(process.argv[2]);
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

// How it bounds a wait: by tries. One more after a pause of up to the wait.
function bounded(waitMs) {
  return waitMs ? { retryCount: 1, retryDelay: waitMs / 2, retryJitter: waitMs / 2 } : {};
}

async function turns(run, task) {
  const { name, locks, wait_ms: wait, hold_ms: hold, counter } = run.words;
  const resource = [`${name}:${task % Math.max(1, locks)}`];
  const settings = bounded(Number(wait));
  while (!run.over) {
    const asked = now();
    let lock;
    try {
      lock = await redlock.acquire(resource, LEASE_MS, settings);
    } catch (error) {
      if (Number(wait) && error.name === "ExecutionError") run.gaveUp.push(now() - asked);
      else {
        failed(run, error);
        await sleep(AFTER_ERROR_MS);
      }
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
      await lock.release();
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

// Kept by an auto-extending `using` each, which is how it renews.
async function hold({ name, locks }) {
  let next = 0;
  let error = "";
  const one = async () => {
    while (next < locks && !error) {
      const resource = [`${name}:${next++}`];
      await new Promise((taken) => {
        const routine = () => {
          kept.push(resource);
          taken();
          return new Promise(() => {});
        };
        redlock.using(resource, LEASE_MS, routine).catch((reason) => {
          error ||= String(reason);
          taken();
        });
      });
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
say(JSON.stringify({ hello: { version: version("redlock"), runs_on: runsOn, renews: true } }));
const lines = createInterface({ input: process.stdin });
lines.on("line", obey);
lines.on("close", () => process.exit(0));
