//! SQLite 3.24 and newer, which has one writer at a time: take and fence are one step, the first in each transaction.
//!
//! ```sql
//! BEGIN IMMEDIATE;
//! -- TAKE, then CHECK: go on only if the result is NULL
//! UPDATE invoice SET paid = 1 WHERE id = 42;
//! COMMIT;
//! ```

/// Creates the table, unless it exists.
pub const INSTALL: &str = "\
CREATE TABLE IF NOT EXISTS fairlock_fences (
    name TEXT NOT NULL PRIMARY KEY,
    token INTEGER NOT NULL,
    store TEXT NOT NULL
)";

/// The first statement of a transaction: raises the token. `?1` is the name, `?2` the token, `?3` the lock store.
pub const TAKE: &str = "\
INSERT INTO fairlock_fences (name, token, store) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET token = excluded.token
    WHERE token < excluded.token AND store = excluded.store";

/// The second statement returns one row: NULL, or the code of a refusal as text, for [`refused`](super::refused). The same
/// parameters. After a refusal, roll back.
pub const CHECK: &str = "\
SELECT CASE
    WHEN store <> ?3 THEN 'LK003'
    WHEN token > ?2 THEN 'LK001'
    WHEN token = ?2 THEN NULL
    ELSE 'LK002'
END
FROM (SELECT 1) LEFT JOIN fairlock_fences ON name = ?1";
