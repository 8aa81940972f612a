//! A resource in SQL that refuses holders whose token is not the newest. SQLite here; the
//! statements are the same in PostgreSQL, with `$1` for `?1`.

use fairlock::FencingToken;
use rusqlite::{Connection, Result, Transaction, TransactionBehavior, params};

/// The newest token that came by, for each resource.
pub const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS fence (name TEXT PRIMARY KEY, token INTEGER NOT NULL)";

/// Changes one row, or none when a newer token was there before.
const PASS: &str = "
    INSERT INTO fence (name, token) VALUES (?1, ?2)
    ON CONFLICT (name) DO UPDATE SET token = excluded.token
        WHERE fence.token <= excluded.token";

/// Runs `work` in a transaction after which older holders are refused. Returns `None` if a newer
/// holder was here before; then nothing was done.
///
/// # Errors
/// Errors of the database; then nothing was done either.
pub fn fenced<T>(
    db: &mut Connection,
    name: &str,
    token: FencingToken,
    work: impl FnOnce(&Transaction<'_>) -> Result<T>,
) -> Result<Option<T>> {
    // Immediate: it waits for other writers here, not in the middle.
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if transaction.execute(PASS, params![name, token.as_i64()])? == 0 {
        return Ok(None); // dropped, so rolled back
    }
    let value = work(&transaction)?;
    transaction.commit()?;
    Ok(Some(value))
}

/// The short form for a table with a token column: one row, one statement. Returns whether the row
/// was changed.
///
/// # Errors
/// Errors of the database.
pub fn set_balance(
    db: &Connection,
    account: &str,
    balance: i64,
    token: FencingToken,
) -> Result<bool> {
    let changed = db.execute(
        "UPDATE account SET balance = ?2, token = ?3 WHERE id = ?1 AND token <= ?3",
        params![account, balance, token.as_i64()],
    )?;
    Ok(changed == 1)
}
