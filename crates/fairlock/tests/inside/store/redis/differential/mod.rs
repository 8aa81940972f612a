//! The Lua scripts against the core, on real servers: the same operations at the same stopped time
//! must give the same answer, the same keys to the last TTL, and the same messages. The file of the
//! host store is the third party: the same operations, answers and messages, and the same state in
//! its row.
//!
//! - `random`: long random histories, with Java clients, operators and a clock that jumps;
//! - `small_states`: every small broken queue, and whether it heals (F38);
//! - `pressure`, `wrong_type`, `limits`: what only a real server refuses (F28, F37, F70, F73);
//! - `foreign`: data of others under the names of a lock's keys (D1);
//! - `shapes`: each key of each kind with one thing wrong, for every operation (D47, D61);
//! - `garbage`: malformed content in our own keys and in the queue (D13);
//! - `silences`: users with long pauses between their operations;
//! - `lifetimes`: how long a token key lives (D17);
//! - `attacks`: interleavings from the design, as far as keys show them;
//! - `regression`: differences that all of these found;
//! - `entering`: entering a queue on the short way and the long one, in every unusual state;
//! - `costs`: how many commands each path of a script calls, compared with the recorded figures;
//! - `vectors`: the golden vectors of `testing/vectors`, the scripts alone;
//! - `latches`: the same for latches;
//! - `together`: several locks in one call against one call for each;
//! - `shares`: the same for read-write locks and semaphores, which have scripts of their own.
//!
//! The other modules are shared: `fixture` (a server and its connections), `dump` (keys to a
//! `Snapshot`), `step`, `resolve`, `others` (what can happen), `run` (both sides), `host` (the
//! third), `shrink`.

mod attacks;
mod costs;
mod dump;
mod entering;
mod fixture;
mod foreign;
mod garbage;
#[cfg(feature = "sqlite")]
mod host;
mod latches;
mod lifetimes;
mod limits;
mod others;
mod pressure;
mod random;
mod regression;
mod resolve;
mod rng;
mod run;
mod shapes;
mod shares;
mod shrink;
mod silences;
mod small_states;
mod step;
mod together;
mod vectors;
mod wrong_type;
