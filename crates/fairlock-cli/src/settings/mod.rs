//! Which store is used, and how: options, the environment, configuration files, passwords.

mod account;
pub(crate) mod configuration;
pub(crate) mod default_path;
pub(crate) mod options;
pub(crate) mod secrets;
pub(crate) mod store_access;
pub(crate) mod store_selection;
mod trust;
