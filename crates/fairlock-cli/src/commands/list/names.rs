//! The names that were asked for: given in full, or by what they begin with.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use crate::base::exit::Failure;
use crate::base::message;
use crate::locks::look::Name;

/// Makes a word a pattern, and stands for the rest of a name.
const REST: u8 = b'*';

/// Characters with which shells and Redis write patterns that there are not here. Without [`REST`] they are parts of a
/// name: it may be a URL.
const OF_PATTERNS: [u8; 4] = [REST, b'?', b'[', b']'];

/// The names, in the order in which they were given.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) full: Vec<Name>,
    prefixes: Vec<Name>,
}

impl Names {
    pub(super) fn parse(words: &[OsString]) -> Result<Self, Failure> {
        let mut names = Self::default();
        for word in words {
            let bytes = word.as_bytes();
            if !bytes.contains(&REST) {
                names.full.push(Name::new(bytes));
                continue;
            }
            match bytes {
                [prefix @ .., REST] if !prefix.iter().any(|byte| OF_PATTERNS.contains(byte)) => {
                    names.prefixes.push(Name::new(prefix));
                }
                _ => {
                    return Err(Failure::usage(format!(
                        "{}: of patterns there is only 'PREFIX*', with `*` at the end and no `?`, `[` or `]`, e.g. \
                         fairlock list 'job:*'; a lock with `*` in its name is shown by `fairlock status NAME`",
                        message::printable(word)
                    )));
                }
            }
        }
        Ok(names)
    }

    /// Whether locks have to be searched for.
    pub(super) fn is_search(&self) -> bool {
        self.full.is_empty() || !self.prefixes.is_empty()
    }

    /// Whether a lock that the search has found was asked for, and is not shown already.
    pub(super) fn are_searched_for(&self, name: &[u8]) -> bool {
        let begins = |prefix: &Name| name.starts_with(prefix.as_bytes());
        let wanted = self.prefixes.is_empty() || self.prefixes.iter().any(begins);
        wanted && self.full.iter().all(|full| full.as_bytes() != name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Names, Failure> {
        Names::parse(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn names_and_prefixes() {
        for (words, searches, found) in [
            (&[][..], true, &["a", "ab", "b"][..]),
            (&["*"], true, &["a", "ab", "b"]),
            (&["a"], false, &["ab", "b"]),
            (&["a*"], true, &["a", "ab"]),
            (&["a*", "b*"], true, &["a", "ab", "b"]),
            (&["a", "a*"], true, &["ab"]),
            (&["ab*"], true, &["ab"]),
            (&["a?", "[ab]"], false, &["a", "ab", "b"]),
        ] {
            let names = parse(words).expect("allowed");
            assert_eq!(names.is_search(), searches, "{words:?}");
            let all = ["a", "ab", "b"].into_iter();
            let seen: Vec<_> = all.filter(|name| names.are_searched_for(name.as_bytes())).collect();
            assert_eq!(seen, found, "{words:?}");
        }
    }

    #[test]
    fn other_patterns_are_refused() {
        for word in ["a*b", "*a", "a**", "a?*", "[ab]*", "a]*", "a*?"] {
            let refusal = parse(&["x", word]).unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("{word}: of patterns ")), "{refusal}");
        }
    }
}
