//! Texts to show to people, without characters that control a terminal or hide other characters.

/// Longest value in bytes. Host names are shorter; a label is meant to fit into a line.
pub(crate) const VALUE_BYTES_MAX: usize = 128;

/// Returns whether `text` can be shown as it is: it has no character that controls a terminal or
/// hides others, and it fits into a line.
pub(crate) fn is_printable(text: &str) -> bool {
    !text.is_empty() && text.len() <= VALUE_BYTES_MAX && !text.chars().any(is_disguise)
}

fn is_disguise(c: char) -> bool {
    // Not only control characters, but also line and paragraph separators, characters that change
    // the direction, and characters without width, which make two texts look the same.
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns the longest beginning of `text` that [`is_printable`], with other characters replaced.
/// `None` if it is empty.
#[cfg(any(unix, test))]
pub(crate) fn printable(text: &str) -> Option<String> {
    let mut shown = String::new();
    for c in text.chars().map(|c| if is_disguise(c) { char::REPLACEMENT_CHARACTER } else { c }) {
        if shown.len() + c.len_utf8() > VALUE_BYTES_MAX {
            break;
        }
        shown.push(c);
    }
    (!shown.is_empty()).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_bounded_and_harmless() {
        assert_eq!(printable("web-1"), Some("web-1".to_owned()));
        assert_eq!(printable(""), None);
        assert_eq!(printable("a\x1b[2Jb\u{202e}c"), Some("a\u{fffd}[2Jb\u{fffd}c".to_owned()));
        // Cut between characters, not inside one: 127 bytes, and a character of two.
        let long = format!("{}éé", "x".repeat(127));
        assert_eq!(printable(&long), Some("x".repeat(127)));
        for text in ["é".repeat(64), "日本".to_owned(), printable(&"\0".repeat(500)).unwrap()] {
            assert!(is_printable(&text), "{text}");
        }
        for text in [String::new(), "x".repeat(129), "a\nb".into(), "\u{2066}".into()] {
            assert!(!is_printable(&text), "{text:?}");
        }
    }

    /// A label with a zero-width space looked the same as another label in `fairlock status`.
    #[test]
    fn d33_what_has_no_width_is_not_printable() {
        for hidden in ['\u{200b}', '\u{200d}', '\u{2060}', '\u{feff}', '\u{ad}', '\u{e0061}'] {
            let text = format!("web{hidden}-1");
            assert!(!is_printable(&text), "{text:?}");
            assert_eq!(printable(&text), Some("web\u{fffd}-1".to_owned()));
        }
    }
}
