//! Logins and rights: users of the server's ACL.

mod elsewhere;
mod logins;
mod password_files;
pub(crate) mod profiles;
mod stopped;
mod strangers;
