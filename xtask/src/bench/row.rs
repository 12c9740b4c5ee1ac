//! A figure beside its peers', one value per round: medians, and the median of the rounds' ratios.

use serde_json::{Map, Value, json};

/// The unit of a figure.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Megabytes,
    Thousands,
    Micros,
    Millis,
    Mebibytes,
    /// Writes of a store.
    Writes,
}

/// See the module. The ratio is to the first peer that is named, more than 1 is better.
pub(super) struct Row {
    name: String,
    unit: Unit,
    less_is_better: bool,
    target: Option<f64>,
    ours: Vec<f64>,
    peers: Vec<(&'static str, Vec<f64>)>,
}

impl Row {
    /// A rate.
    pub(super) fn more_is_better(name: &str, unit: Unit) -> Row {
        let name = String::from(name);
        Row { name, unit, less_is_better: false, target: None, ours: vec![], peers: vec![] }
    }

    /// A time or a size: the ratio is the peer's over ours.
    pub(super) fn less_is_better(name: &str, unit: Unit) -> Row {
        Row { less_is_better: true, ..Row::more_is_better(name, unit) }
    }

    /// The least ratio wanted.
    pub(super) fn target(&mut self, least: Option<f64>) {
        self.target = least;
    }

    /// A round's figure of ours.
    pub(super) fn ours(&mut self, value: f64) {
        self.ours.push(value);
    }

    /// A round's figure of a peer.
    pub(super) fn peer(&mut self, name: &'static str, value: f64) {
        match self.peers.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => self.peers.push((name, vec![value])),
        }
    }

    /// As a benchmark program would print it.
    pub(super) fn finish(self) -> Value {
        let first = self.peers.first().map(|(_, values)| &values[..]).unwrap_or_default();
        let ratio = |(ours, peer): (&f64, &f64)| match self.less_is_better {
            true => peer / ours,
            false => ours / peer,
        };
        let ratios = self.ours.iter().zip(first).map(ratio).collect();
        let unit = match self.unit {
            Unit::Megabytes => "MB/s",
            Unit::Thousands => "k/s",
            Unit::Micros => "µs",
            Unit::Millis => "ms",
            Unit::Mebibytes => "MiB",
            Unit::Writes => "writes",
        };
        let mut row = Map::new();
        row.insert("name".into(), json!(self.name));
        row.insert("unit".into(), json!(unit));
        row.insert("ours".into(), json!(median(self.ours)));
        for (name, values) in self.peers {
            row.insert(name.into(), json!(median(values)));
        }
        row.insert("ratio".into(), json!(median(ratios)));
        if let Some(target) = self.target {
            row.insert("target".into(), json!(target));
        }
        Value::Object(row)
    }
}

/// To a thousandth; of nothing: 0.
fn median(mut values: Vec<f64>) -> f64 {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let middle = values.get(values.len() / 2).copied().unwrap_or(0.0);
    (middle * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_the_rounds_own() {
        let mut row = Row::more_is_better("x", Unit::Thousands);
        for (ours, peer) in [(10.0, 20.0), (30.0, 30.0), (8.0, 10.0)] {
            row.ours(ours);
            row.peer("peer", peer);
        }
        let row = row.finish();
        assert_eq!((&row["ours"], &row["peer"]), (&json!(10.0), &json!(20.0)));
        assert_eq!(row["ratio"], json!(0.8));
    }

    #[test]
    fn of_times_the_smaller_is_better() {
        let mut row = Row::less_is_better("x", Unit::Micros);
        row.ours(10.0);
        row.peer("peer", 25.0);
        assert_eq!(row.finish()["ratio"], json!(2.5));
    }
}
