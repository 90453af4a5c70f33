//! What a server counts, in the text format of Prometheus.

/// One value of a metric that has labels.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    labels: &'a str,
    /// What was counted or measured.
    pub value: f64,
}

impl<'a> Sample<'a> {
    /// The value of a label. Not for labels whose values hold commas or quotes.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&'a str> {
        let mut pairs = self
            .labels
            .split(',')
            .filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(found, _)| *found == name)?;
        Some(value.trim_matches('"'))
    }
}

/// The values of this metric, by labels.
pub fn samples<'a>(metrics: &'a str, metric: &str) -> impl Iterator<Item = Sample<'a>> {
    metrics.lines().filter_map(move |line| {
        let line = line.strip_prefix(metric)?.strip_prefix('{')?;
        let (labels, value) = line.split_once("} ")?;
        let value = value.trim().parse().ok()?;
        Some(Sample { labels, value })
    })
}
