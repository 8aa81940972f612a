//! A subscriber that keeps every span and event of the process, of any crate, at any level.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// One event, one span, or fields recorded on a span.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) target: String,
    /// Fields with their values, after the message or the span's name.
    pub(crate) text: String,
    pub(crate) is_span: bool,
}

#[derive(Default)]
struct Kept {
    lines: Vec<Line>,
    spans: BTreeMap<u64, (Level, String, String)>,
    /// The fields that a span began with.
    fields: BTreeMap<u64, String>,
}

static KEPT: Mutex<Option<Kept>> = Mutex::new(None);

fn with<T>(look: impl FnOnce(&mut Kept) -> T) -> T {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    look(kept.get_or_insert_with(Kept::default))
}

struct TestSubscriber;

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            write!(self.message, "{value:?}").unwrap();
        } else {
            write!(self.fields, " {}={value:?}", field.name()).unwrap();
        }
    }
}

fn keep(meta: &Metadata<'_>, text: String, is_span: bool) {
    let line = Line { level: *meta.level(), target: meta.target().into(), text, is_span };
    with(|kept| kept.lines.push(line));
}

impl Subscriber for TestSubscriber {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut text = Text::default();
        attributes.record(&mut text);
        let meta = attributes.metadata();
        let named = (*meta.level(), meta.target().to_owned(), meta.name().to_owned());
        with(|kept| {
            kept.spans.insert(id, named);
            kept.fields.insert(id, text.fields.clone());
        });
        keep(meta, format!("{}{}", meta.name(), text.fields), true);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut text = Text::default();
        values.record(&mut text);
        with(|kept| {
            let (level, target, name) = kept.spans[&span.into_u64()].clone();
            let text = format!("{name}{}", text.fields);
            kept.lines.push(Line { level, target, text, is_span: true });
        });
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        // As a log shows it: with the fields of the span that the event names.
        let of = event.parent().map(Id::into_u64);
        let of = of.map(|id| with(|kept| kept.fields[&id].clone())).unwrap_or_default();
        keep(event.metadata(), format!("{}{}{of}", text.message, text.fields), false);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Installs it as the subscriber of this process.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(TestSubscriber).expect("no other one");
    });
}

/// Clears all lines so far.
pub(crate) fn begin() {
    with(|kept| kept.lines.clear());
}

/// The lines since [`begin`].
pub(crate) fn lines() -> Vec<Line> {
    with(|kept| kept.lines.clone())
}
