//! `fairlock fence-sql`: prints the script that installs a fence in a database. Connects to nothing.

use fairlock::fence::{postgres, sqlite};

use crate::base::exit::{Code, Failure};
use crate::base::output;

const EXAMPLES: &str = "\
Examples:
  fairlock fence-sql | psql -X -v ON_ERROR_STOP=1 -d shop   install in PostgreSQL, or upgrade
  fairlock fence-sql --dialect sqlite | sqlite3 shop.db
";

const HELP: &str = "\
How to use it: docs/fence.md

Exit codes:
  0        printed
  64       wrong usage
  70       internal error; stdout cannot be written";

#[derive(clap::Args, Debug)]
#[command(before_help = EXAMPLES, after_long_help = HELP)]
pub(crate) struct Args {
    /// The database.
    #[arg(long, value_enum, default_value = "postgres")]
    dialect: Dialect,

    /// The schema of the table and functions in PostgreSQL.
    ///
    /// Created unless it exists.
    #[arg(long, value_name = "NAME", default_value = postgres::SCHEMA)]
    schema: String,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Postgres,
    Sqlite,
}

/// Prints the script.
pub(crate) fn fence_sql(args: &Args) -> Result<Code, Failure> {
    match args.dialect {
        Dialect::Postgres => {
            output::print(&postgres::install(&args.schema).map_err(Failure::usage)?)
        }
        Dialect::Sqlite if args.schema == postgres::SCHEMA => {
            output::print(&format!("{};\n", sqlite::INSTALL))
        }
        Dialect::Sqlite => Err(Failure::usage("--schema: SQLite has no schemas")),
    }
}
