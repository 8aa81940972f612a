//! The holds of a `fairlock run` that was killed, which its guardian releases after the command is dead.
//!
//! The guardian receives them through its socket before the command starts: arguments and environments of a process can
//! be read by others, and passwords are among them. It does nothing else with them.

use std::time::Duration;

use fairlock::{Client, Guard, ReleaseTicket};
use serde_json::{Value, json};
use tokio::time;

use crate::base::exit::{Code, Failure};
use crate::settings::store_access::StoreAccess;
use crate::settings::store_selection::Reach;

/// How long the guardian tries. After that the leases end the holds.
const LIMIT: Duration = Duration::from_secs(10);

/// The first byte of the line that carries them.
pub(super) const MARK: u8 = b'{';

/// A store, and holds in it.
#[derive(Debug)]
pub(crate) struct AbandonedHolds {
    access: StoreAccess,
    tickets: Vec<ReleaseTicket>,
}

impl AbandonedHolds {
    /// The holds to release. `None` if the store itself notices the death of its client, as that of this host does.
    pub(crate) fn of(access: &StoreAccess, guards: &[&Guard]) -> Option<Self> {
        let tickets = guards.iter().map(|guard| guard.release_ticket()).collect();
        let access = access.clone().without_variables();
        (access.reach() == Reach::Fleet).then_some(Self { access, tickets })
    }

    /// As a line of text, which holds passwords.
    pub(super) fn line(&self) -> String {
        let tickets: Vec<_> = self.tickets.iter().map(ToString::to_string).collect();
        json!({ "access": self.access.to_json(), "tickets": tickets }).to_string() + "\n"
    }

    /// Reads a line.
    pub(super) fn of_line(line: &[u8]) -> Option<Self> {
        let json: Value = serde_json::from_slice(line).ok()?;
        let ticket = |text: &Value| text.as_str()?.parse().ok();
        let tickets: Option<_> = json["tickets"].as_array()?.iter().map(ticket).collect();
        Some(Self { access: StoreAccess::of_json(&json["access"])?, tickets: tickets? })
    }

    /// Releases them. Nobody reads what this process says, so an error only ends it.
    pub(crate) async fn release(self) -> Result<Code, Failure> {
        let work = async {
            let config = self.access.config()?.client_name("fairlock").announce(false);
            let client = Client::with_config(config.connect_retry(LIMIT)).await?;
            for ticket in &self.tickets {
                // The others are still to be released.
                let _ = client.release_by(ticket).await;
            }
            client.shutdown().await;
            Ok(Code::OK)
        };
        time::timeout(LIMIT, work).await.unwrap_or(Ok(Code::UNAVAILABLE))
    }
}
