//! PostgreSQL 13 and newer.

use crate::base::error::Error;

/// The schema of the statements here. For another one, write them yourself.
pub const SCHEMA: &str = "fairlock";

/// Takes the fence. `$1` is the name, `$2` the token as a `bigint`, `$3` the lock store. Fails with SQLSTATE `55P03` if
/// the transaction of a former holder is still open after five seconds: a fourth argument sets other milliseconds. Make it
/// longer than the longest transaction.
pub const TAKE: &str = "SELECT fairlock.fairlock_take($1, $2, $3)";

/// Fences a transaction. `$1` is the name, `$2` the token as a `bigint`. While this transaction is open, its session is
/// ended by the server if it is idle for ten seconds, unless it has a shorter limit: a third argument sets other
/// milliseconds.
pub const FENCE: &str = "SELECT fairlock.fairlock_fence($1, $2)";

/// Moves a name to another lock store; for the owner of the table. `$1` is the name, `$2` the store. Waits for open
/// transactions. Later ones of the old store's holders are refused.
pub const MOVE: &str = "UPDATE fairlock.fairlock_fences SET store = $2, token = 0 WHERE name = $1";

/// The most bytes of an identifier.
const IDENTIFIER_MAX: usize = 63;

/// Returns the statement that creates table and functions in `schema`, in one transaction. It may be run again; it upgrades
/// an older version and refuses to replace a newer one.
///
/// # Errors
/// [`ErrorKind::Misuse`](crate::ErrorKind::Misuse) if `schema` is not made of lower-case letters, digits and underscores, or is
/// reserved.
///
/// # Examples
/// ```
/// let script = fairlock::fence::postgres::install("locks")?;
/// assert!(script.contains("CREATE OR REPLACE FUNCTION \"locks\".fairlock_take"));
/// # Ok::<_, fairlock::Error>(())
/// ```
pub fn install(schema: &str) -> Result<String, Error> {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let reserved = schema.starts_with("pg_");
    if !begins || reserved || !schema.chars().all(is_word) || schema.len() > IDENTIFIER_MAX {
        return Err(Error::misuse(format!(
            "'{}' cannot be the fence's schema: use lower-case letters, digits and underscores, at most \
             {IDENTIFIER_MAX}, no digit first, and not 'pg_'",
            schema.escape_debug()
        )));
    }
    Ok(include_str!("postgres.sql").replace("{schema}", schema))
}
