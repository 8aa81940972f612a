//! Passes the events of the store to the parts of the client that they concern.

use crate::base::clock::lock;
use crate::engine::context::Context;
use crate::engine::replay;
use crate::observe;
use crate::settings::connection_state::ConnectionState;
use crate::settings::server_checks::Warning;
use crate::store::{Event, Topic};
#[cfg(feature = "redis")]
use fairlock_core::{GUEST_MS, RequestId};
use std::sync::Arc;
#[cfg(feature = "redis")]
use std::time::Duration;

impl Context {
    /// Handles one event of the store.
    pub(crate) fn hear(self: &Arc<Self>, event: Event) {
        self.survive(|| self.heard(event));
    }

    fn heard(self: &Arc<Self>, event: Event) {
        match event {
            Event::Granted { grant, at_ms, arrived, clock } => {
                let base = clock.as_deref().unwrap_or(&self.clock).earliest(at_ms, arrived);
                self.granted_by_message(&grant, base);
            }
            Event::Forced { owner, token } => {
                if !self.watchdog.check_hold(&owner, token) {
                    // That hold is over, never existed, or is not watched yet.
                    self.machine.note_dropped();
                }
            }
            #[cfg(feature = "redis")]
            Event::LeftToGuests { request } => self.look_after_guests(request),
            Event::Wake(Topic::Latch(name)) => self.latches.wake(&name, false),
            Event::Wake(Topic::Leader(name)) => self.observers.wake(&name),
            Event::Wake(topic) => self.wake(&topic),
            Event::CountedDown(name) => self.latches.wake(&name, true),
            Event::Invalid => self.machine.note_dropped(),
            Event::Down(scope) => {
                self.set_connection(ConnectionState::Reconnecting);
                self.watchdog.suspect(&scope);
                self.releases_may_be_lost(&scope);
            }
            Event::Up { scope, whole } => {
                // It may be another server, or the same one with another clock.
                self.clock.forget();
                if whole {
                    self.set_connection(ConnectionState::Connected);
                }
                // Guards first: a waiter must not get what a guard still believes it has.
                self.watchdog.check(&scope);
                self.check_everyone(&scope);
                self.latches.check(&scope);
                self.observers.check(&scope);
                replay::again(self, &scope);
            }
            Event::InboxUp(scope) => {
                self.check(&scope);
                self.latches.check(&scope);
                self.observers.check(&scope);
            }
            Event::InboxDown => {}
            Event::Checked(found) => self.note_warnings(found),
            Event::Found(check, found) => self.note_found(check, found),
        }
    }

    /// As soon as the lock for which `request` waits is no longer left to foreign waiters, looks at
    /// it.
    #[cfg(feature = "redis")]
    fn look_after_guests(self: &Arc<Self>, request: RequestId) {
        let Some(name) = self.machine.read(|it| it.name_of(request).cloned()) else {
            return self.machine.note_dropped();
        };
        let context = Arc::clone(self);
        self.spawn(async move {
            tokio::time::sleep(Duration::from_millis(GUEST_MS)).await;
            context.wake(&Topic::ReadWrite(name));
        });
    }

    /// Replaces the warnings of the last connection with those of the new one.
    fn note_warnings(&self, found: Vec<Warning>) {
        let before = std::mem::replace(&mut *lock(&self.warnings), found.clone());
        // Reported once, however often the client reconnects.
        for warning in found.iter().filter(|warning| !before.contains(warning)) {
            observe::warned(warning);
        }
    }
}
