//! Which store is used, and how: options, environment, configuration files, passwords.

mod account;
pub(crate) mod configuration;
pub(crate) mod options;
mod place;
pub(crate) mod secrets;
pub(crate) mod store_selection;
mod trust;
