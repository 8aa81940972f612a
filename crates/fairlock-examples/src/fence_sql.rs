//! A resource in SQLite that refuses holders whose token is not the newest.

use fairlock::FencingToken;
use fairlock::fence::sqlite::{CHECK, TAKE};
use fairlock::fence::{self, Refusal};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

/// The lock store, the same in all programs that write here.
const STORE: &str = "production";

/// Runs `work` in a transaction after which older holders are refused. Returns the reason if a newer
/// holder was here before; then nothing was done.
///
/// # Errors
/// Errors of the database; then nothing was done either.
pub fn fenced<T>(
    db: &mut Connection,
    name: &str,
    token: FencingToken,
    work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Result<T, Refusal>> {
    // Immediate: it waits for other writers here, not in the middle.
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let values = params![name, token.as_i64(), STORE];
    transaction.execute(TAKE, values)?;
    let code: Option<String> = transaction.query_row(CHECK, values, |row| row.get(0))?;
    if let Some(refusal) = code.and_then(|code| fence::refused(token, &code)) {
        return Ok(Err(refusal)); // dropped, so rolled back
    }
    let value = work(&transaction)?;
    transaction.commit()?;
    Ok(Ok(value))
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
) -> rusqlite::Result<bool> {
    let changed = db.execute(
        "UPDATE account SET balance = ?2, token = ?3 WHERE id = ?1 AND token <= ?3",
        params![account, balance, token.as_i64()],
    )?;
    Ok(changed == 1)
}
