//! `fairlock leader`: who leads an election, now or with every change.
//!
//! The JSON form (`HELP`) is a contract: fields are added, never renamed or removed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::{Duration, UNIX_EPOCH};

use fairlock::{Client, ClientInfo, Leader};
use serde_json::{Value, json};
use tokio::time;

use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::base::output;
use crate::locks::{form, text};
use crate::settings::options;
use crate::store::{self, Store};

/// How long the look at the leader's client may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  fairlock leader scheduler                   show the leader, and what it announces
  fairlock leader --watch --json scheduler    one line for each change, for programs
";

const HELP: &str = "\
Exit codes:
  0        the election has a leader
  1        the election has no leader
  64       wrong usage or a wrong setting; the name is in use as another kind of lock, or by
           another program
  69       the store cannot be reached, or there is none
  70       internal error; an answer or a file that is not fairlock's; stdout cannot be written
  77       access denied by the store, or no encrypted connection to a verified server

With --watch:
  Prints the present state, then each change, until a signal or an error of the store. The last
  state is never missed, and terms only rise; a term that ended before it was seen is not shown.
  A missing leader is seen within 5 s, or when the lease of a leader that died expires.

With --json, one object on each line:
  schema     1; fields may be added under the same number
  name       the election's name, as text; bytes that are not UTF-8 are replaced
  name_hex   the name's bytes in hexadecimal if it is not UTF-8, else null
  leader     null, or {\"owner\": ID, as in `fairlock status`, \"term\": its fencing token, a number,
             \"value\": what it announces, as text, empty without --value, or null while it has
             announced nothing,
             \"value_hex\": the value's bytes in hexadecimal if it is not UTF-8, else null,
             \"since_ms\": when it first announced something by the store's clock, in ms since 1970,
             or null, \"client\": as in `fairlock status --json`, or null}";

#[derive(clap::Args, Debug)]
#[command(before_help = EXAMPLES, after_long_help = HELP)]
pub(crate) struct Args {
    /// The election's name, any bytes.
    #[arg(value_name = "NAME")]
    name: OsString,

    /// Print a line for each change, until a signal.
    #[arg(long)]
    watch: bool,

    /// Print JSON; `--help` describes its fields.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: options::Store,
}

/// Looks once, or until a signal. Signals keep their default action: nothing is held here.
pub(crate) async fn leader(args: Args) -> Result<Code, Failure> {
    let store = Store::resolve(&args.store)?;
    // A watcher may be there before the first candidate, and before the server.
    let store = if args.watch { store.silent().waited_for(None) } else { store.looked_at() };
    store.warn(false);
    let asked = store.asked(false);
    let client = store.connect(false).await?;
    let done = if args.watch { watch(&client, &args).await } else { look(&client, &args).await };
    store::shutdown(client).await;
    if done.as_ref().is_ok_and(|code| *code == Code::NO) {
        asked.found_nothing();
    }
    done
}

async fn look(client: &Client, args: &Args) -> Result<Code, Failure> {
    let leader = client.election(args.name.as_bytes()).leader().await?;
    output::print(&format!("{}\n", line(client, args, leader.as_ref()).await))?;
    Ok(if leader.is_some() { Code::OK } else { Code::NO })
}

async fn watch(client: &Client, args: &Args) -> Result<Code, Failure> {
    let mut observer = client.election(args.name.as_bytes()).observe().await?;
    loop {
        let leader = tokio::select! {
            leader = observer.changed() => leader?,
            () = output::reader_is_gone() => return Ok(Code::OK),
        };
        let line = line(client, args, leader.as_ref()).await;
        if output::tell(format!("{line}\n"))?.is_break() {
            return Ok(Code::OK);
        }
    }
}

async fn line(client: &Client, args: &Args, leader: Option<&Leader>) -> String {
    let who = match leader {
        Some(leader) => client_of(client, &args.name, leader).await,
        None => None,
    };
    match args.json {
        true => form_of(&args.name, leader, who.as_ref()).to_string(),
        false => text(&args.name, leader, who.as_ref()),
    }
}

/// What the leader's client says of itself. It is unknown if the look fails, or another leads by then.
async fn client_of(client: &Client, name: &OsStr, leader: &Leader) -> Option<ClientInfo> {
    let look = client.fair_lock(name.as_bytes());
    let status = time::timeout(LOOK_TIMEOUT, look.inspect_first(0)).await.ok()?.ok()?;
    status.client(&leader.owner).cloned()
}

fn text(name: &OsStr, leader: Option<&Leader>, client: Option<&ClientInfo>) -> String {
    let name = message::printable(name);
    let Some(leader) = leader else { return format!("{name}: nobody leads") };
    let mut text = format!("{name}: led by {}", leader.owner);
    text.extend(client.map(|client| format!(", {}", text::who(client))));
    text.push_str(&format!(", term {}", leader.term));
    match leader.value.clone().map(OsString::from_vec) {
        None => text.push_str(", not announced"),
        Some(value) if value.is_empty() => {}
        Some(value) => {
            text.push_str(": ");
            text.push_str(&message::printable(&value));
        }
    }
    text
}

fn form_of(name: &OsStr, leader: Option<&Leader>, client: Option<&ClientInfo>) -> Value {
    let hex = |bytes: &[u8]| std::str::from_utf8(bytes).is_err().then(|| form::hex(bytes));
    let since = |leader: &Leader| leader.since?.duration_since(UNIX_EPOCH).ok();
    json!({
        "schema": 1,
        "name": name.to_string_lossy(),
        "name_hex": hex(name.as_bytes()),
        "leader": leader.map(|leader| json!({
            "owner": leader.owner.to_string(),
            "term": leader.term.get(),
            "value": leader.value.as_deref().map(String::from_utf8_lossy),
            "value_hex": leader.value.as_deref().and_then(hex),
            "since_ms": since(leader).map(|since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
            "client": client.map(form::client_form),
        })),
    })
}
