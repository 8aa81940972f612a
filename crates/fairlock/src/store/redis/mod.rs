//! The store on one Redis or Valkey server, or on whichever Sentinels name.
//!
//! Two connections: one for commands, one for the inbox, so that a slow reader of messages never
//! kills commands and a blocked command never delays a grant. A third one where replicas are waited
//! for. Each has a task that connects, watches and reconnects it.

mod attempt;
mod classify;
mod confirm;
mod dial;
#[cfg(test)]
mod differential;
mod inbox;
mod keys;
mod link;
mod login;
mod place;
mod record;
mod reply;
mod scan;
mod script;
mod sentinels;
#[cfg(test)]
mod tests;

use super::{Boxed, Confirmed, Cursor, Events, Page, Reply, Store, StoreError, Topic};
use crate::client_info::ClientInfo;
use crate::clock::Moment;
use crate::config::Config;
use crate::error::Error;
use classify::classify;
use confirm::Confirmer;
use dial::Connection;
use fairlock_core::{ClientId, LockName, Op, Rules};
use inbox::Inbox;
use link::Link;
use place::Place;
use record::Record;
use redis::Value;
use script::By;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// A store on a Redis or Valkey server.
pub(crate) struct RedisStore {
    link: Arc<Link>,
    inbox: Arc<Inbox>,
    /// What this client says of itself, unless the settings keep it silent.
    record: Option<Arc<Record>>,
    /// Where replicas are waited for.
    confirmer: Option<Confirmer>,
    rules: Rules,
}

impl RedisStore {
    /// Makes the store; its tasks start on the runtime that this is called in. They end when the
    /// runtime does.
    ///
    /// # Errors
    /// When the settings cannot name a server.
    pub(crate) fn start(
        config: &Config,
        client: ClientId,
        events: Events,
    ) -> Result<Arc<Self>, Error> {
        let place = Place::new(config)?;
        let record = config.announce.then(|| {
            // The server says since when.
            let info = ClientInfo::here(config, UNIX_EPOCH);
            Arc::new(Record::new(client, info))
        });
        let link = Link::new(Arc::clone(&place), config, record.clone(), Arc::clone(&events));
        let inbox = Inbox::new(Arc::clone(&place), config, client, events);
        let confirmer = Confirmer::start(&place, config);
        tokio::spawn(Arc::clone(&link).run());
        tokio::spawn(Arc::clone(&inbox).run());
        tokio::spawn(async move { place.watch().await });
        if let Some(record) = record.clone() {
            tokio::spawn(link::keep_record(Arc::clone(&link), record, record::REFRESH));
        }
        Ok(Arc::new(Self { link, inbox, record, confirmer, rules: config.rules() }))
    }

    /// What comes of the first attempt to connect, both connections.
    pub(crate) async fn first_contact(&self) -> Result<(), Error> {
        self.link.first_contact().await?;
        self.inbox.first_contact().await
    }

    async fn send(
        &self,
        conn: &mut Connection,
        by: By,
        name: &LockName,
        op: &Op,
    ) -> Result<Value, redis::RedisError> {
        let cmd = script::call(by, &self.rules, name, op);
        conn.send_packed_command(&cmd).await?.extract_error()
    }
}

impl Store for RedisStore {
    fn call<'a>(&'a self, name: &'a LockName, op: &'a Op) -> Boxed<'a, Result<Reply, StoreError>> {
        Box::pin(async move {
            let Some(mut conn) = self.link.connection() else {
                return Err(self.link.not_connected());
            };
            let mut sent = Moment::now();
            let mut result = self.send(&mut conn, By::Hash, name, op).await;
            if result.as_ref().is_err_and(classify::is_noscript) {
                sent = Moment::now();
                result = self.send(&mut conn, By::Text, name, op).await;
            }
            match result {
                Ok(value) => {
                    let answer = reply::answer(value).map_err(|message| {
                        StoreError::refused(Error::new(crate::ErrorKind::Protocol, message))
                    })?;
                    self.link.note_answer();
                    crate::observe::answered(name, &answer);
                    Ok(Reply { sent, answer })
                }
                Err(error) => {
                    let mut failure = classify(&error);
                    if classify::is_wrong_type(&error) {
                        failure =
                            link::name_wrong_type(&mut conn, name, op).await.unwrap_or(failure);
                    }
                    self.link.note_failure(&error);
                    Err(failure)
                }
            }
        })
    }

    fn is_replicated(&self) -> bool {
        self.confirmer.is_some()
    }

    fn confirm<'a>(
        &'a self,
        name: &'a LockName,
        op: &'a Op,
    ) -> Boxed<'a, Result<Confirmed, StoreError>> {
        Box::pin(async move {
            match &self.confirmer {
                Some(confirmer) => confirmer.confirm(name, op).await,
                None => self.call(name, op).await.map(Confirmed::by_the_store),
            }
        })
    }

    fn listen(&self, topic: Topic) -> Boxed<'_, ()> {
        self.inbox.listen(topic)
    }

    fn unlisten(&self, topic: Topic) {
        self.inbox.unlisten(topic);
    }

    fn ready(&self) -> Boxed<'_, ()> {
        Box::pin(self.link.ready())
    }

    fn inbox_up(&self) -> bool {
        self.inbox.is_up()
    }

    fn ping(&self) -> Boxed<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let Some(mut conn) = self.link.connection() else {
                return Err(self.link.not_connected());
            };
            let reply = conn.send_packed_command(&redis::cmd("PING")).await;
            reply.and_then(Value::extract_error).map(drop).map_err(|error| classify(&error))
        })
    }

    fn clients<'a>(&'a self, ids: &'a [ClientId]) -> Boxed<'a, BTreeMap<ClientId, ClientInfo>> {
        Box::pin(async move {
            let Some(mut conn) = self.link.connection() else { return BTreeMap::new() };
            let asked = conn.send_packed_commands(&record::read(ids), 0, ids.len()).await;
            // Without an answer they are unknown, as where nothing is written.
            let replies = asked.unwrap_or_default();
            let known = ids.iter().zip(replies);
            known.filter_map(|(id, reply)| Some((*id, record::decode(reply)?))).collect()
        })
    }

    fn is_searched(&self) -> bool {
        true
    }

    fn page(&self, at: Cursor, keys: u32) -> Boxed<'_, Result<Page, StoreError>> {
        Box::pin(async move {
            let Some(mut conn) = self.link.connection() else {
                return Err(self.link.not_connected());
            };
            let page = scan::page(&mut conn, at, keys).await;
            match &page {
                Ok(_) => self.link.note_answer(),
                Err(scan::Failed::Call(error)) => self.link.note_failure(error),
                Err(scan::Failed::Reply(_)) => {}
            }
            page.map_err(scan::Failed::into_store_error)
        })
    }

    fn farewell(&self) -> Boxed<'_, ()> {
        Box::pin(async move {
            let Some(cmd) = self.record.as_ref().and_then(|record| record.remove()) else { return };
            if let Some(mut conn) = self.link.connection() {
                // A record that stays ends by its TTL.
                let _ = conn.send_packed_command(&cmd).await;
            }
        })
    }
}
