//! The settings, and the reports of a client about itself and its server.

pub(crate) mod client_info;
pub(crate) mod config;
pub(crate) mod connection_state;
pub(crate) mod credentials;
#[cfg(all(unix, feature = "redis"))]
pub(crate) mod file_permissions;
pub(crate) mod replicas;
pub(crate) mod server_checks;
pub(crate) mod text;
pub(crate) mod url;
