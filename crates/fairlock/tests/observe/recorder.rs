//! A metrics recorder that keeps everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

type Series = (String, BTreeMap<String, String>);

#[derive(Default)]
struct Kept {
    /// By name: type, unit, meaning.
    described: BTreeMap<String, (&'static str, &'static str, String)>,
    sums: BTreeMap<Series, f64>,
    gauges: BTreeMap<Series, f64>,
    samples: BTreeMap<Series, Vec<f64>>,
    /// Every series that ever had a value.
    seen: BTreeSet<Series>,
}

static KEPT: Mutex<Option<Kept>> = Mutex::new(None);

fn with<T>(look: impl FnOnce(&mut Kept) -> T) -> T {
    let mut kept: MutexGuard<'_, Option<Kept>> =
        KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    look(kept.get_or_insert_with(Kept::default))
}

struct TestRecorder;

struct Cell(Series);

fn series(name: &str, labels: &[(&str, &str)]) -> Series {
    let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    (name.into(), labels)
}

fn cell(key: &Key) -> Arc<Cell> {
    let labels: Vec<_> = key.labels().map(|label| (label.key(), label.value())).collect();
    Arc::new(Cell(series(key.name(), &labels)))
}

impl TestRecorder {
    fn describe(key: KeyName, shape: &'static str, unit: Option<Unit>, text: SharedString) {
        let unit = unit.expect("every metric has a unit").as_str();
        with(|kept| kept.described.insert(key.as_str().into(), (shape, unit, text.into_owned())));
    }
}

impl Recorder for TestRecorder {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        Self::describe(key, "counter", unit, text);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        Self::describe(key, "gauge", unit, text);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        Self::describe(key, "histogram", unit, text);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(cell(key))
    }
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        with(|kept| {
            kept.seen.insert(self.0.clone());
            *kept.sums.entry(self.0.clone()).or_default() += value as f64;
        });
    }

    fn absolute(&self, _: u64) {
        panic!("counters only count up");
    }
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        with(|kept| {
            kept.seen.insert(self.0.clone());
            *kept.gauges.entry(self.0.clone()).or_default() += value;
        });
    }

    fn decrement(&self, value: f64) {
        GaugeFn::increment(self, -value);
    }

    fn set(&self, _: f64) {
        panic!("many clients share a gauge: it is only moved");
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        with(|kept| {
            kept.seen.insert(self.0.clone());
            kept.samples.entry(self.0.clone()).or_default().push(value);
        });
    }
}

/// Installs it as the recorder of this process.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| metrics::set_global_recorder(TestRecorder).expect("no other recorder"));
}

/// Clears counters and samples; gauges stay, because they describe the present.
pub(crate) fn begin() {
    with(|kept| {
        kept.sums.clear();
        kept.samples.clear();
    });
}

/// The value of a counter since [`begin`], for the series with exactly these labels.
pub(crate) fn count(name: &str, labels: &[(&str, &str)]) -> f64 {
    with(|kept| kept.sums.get(&series(name, labels)).copied().unwrap_or(0.0))
}

pub(crate) fn gauge(name: &str, labels: &[(&str, &str)]) -> f64 {
    with(|kept| kept.gauges.get(&series(name, labels)).copied().unwrap_or(0.0))
}

/// The samples of a histogram since [`begin`].
pub(crate) fn samples(name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
    with(|kept| kept.samples.get(&series(name, labels)).cloned().unwrap_or_default())
}

/// The gauges that are not zero.
pub(crate) fn raised() -> Vec<(Series, f64)> {
    with(|kept| kept.gauges.clone().into_iter().filter(|(_, value)| *value != 0.0).collect())
}

pub(crate) fn described() -> BTreeMap<String, (&'static str, &'static str, String)> {
    with(|kept| kept.described.clone())
}

pub(crate) fn seen() -> BTreeSet<Series> {
    with(|kept| kept.seen.clone())
}
