//! One of several locks that are taken together.

use crate::api::lock::Lock;
use crate::api::session::Session;
use fairlock_core::{Kind, LockName};

/// One of the locks of a [`MultiLock`](crate::MultiLock): made from the name of a fair lock, from a
/// [`Lock`], by [`RwLock::to_read`](crate::RwLock::to_read) and
/// [`to_write`](crate::RwLock::to_write), or by [`Semaphore::many`](crate::Semaphore::many).
#[derive(Clone, Debug)]
pub struct Member(Of);

#[derive(Clone, Debug)]
enum Of {
    Named(Vec<u8>),
    Lock(Box<Lock>),
}

impl Member {
    pub(crate) fn lock(self, session: &Session) -> Lock {
        match self.0 {
            Of::Named(name) => Lock::new(session.clone(), &name, Kind::Fair),
            Of::Lock(lock) => *lock,
        }
    }

    fn named(name: impl Into<Vec<u8>>) -> Self {
        Self(Of::Named(name.into()))
    }
}

impl From<&str> for Member {
    fn from(name: &str) -> Self {
        Self::named(name)
    }
}

impl From<String> for Member {
    fn from(name: String) -> Self {
        Self::named(name)
    }
}

impl From<&String> for Member {
    fn from(name: &String) -> Self {
        Self::named(name.as_str())
    }
}

impl From<&[u8]> for Member {
    fn from(name: &[u8]) -> Self {
        Self::named(name)
    }
}

impl From<Vec<u8>> for Member {
    fn from(name: Vec<u8>) -> Self {
        Self::named(name)
    }
}

impl From<&LockName> for Member {
    fn from(name: &LockName) -> Self {
        Self::named(name.as_bytes())
    }
}

impl From<Lock> for Member {
    fn from(lock: Lock) -> Self {
        Self(Of::Lock(Box::new(lock)))
    }
}

impl From<&Lock> for Member {
    fn from(lock: &Lock) -> Self {
        lock.clone().into()
    }
}
