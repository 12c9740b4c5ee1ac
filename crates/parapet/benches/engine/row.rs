//! A figure and those of its peers, in the form that `cargo xtask bench` reads: one JSON object per
//! line.

use serde_json::{Map, json};

/// The median; 0 without values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// A figure: one value of ours and of each peer per round.
pub(crate) struct Row {
    name: String,
    unit: &'static str,
    ours: Vec<f64>,
    peers: Vec<(&'static str, Vec<f64>)>,
    target: Option<f64>,
    less_is_better: bool,
}

impl Row {
    pub(crate) fn new(name: impl Into<String>, unit: &'static str) -> Row {
        let name = name.into();
        Row { name, unit, ours: vec![], peers: vec![], target: None, less_is_better: false }
    }

    pub(crate) fn target(self, least: Option<f64>) -> Row {
        Row { target: least, ..self }
    }

    /// Marks the figure as a time: the ratio is the peer's value over ours.
    pub(crate) fn less_is_better(self) -> Row {
        Row { less_is_better: true, ..self }
    }

    pub(crate) fn ours(mut self, values: &[f64]) -> Row {
        self.ours.extend_from_slice(values);
        self
    }

    /// Adds a peer. The ratio refers to the first one.
    pub(crate) fn peer(mut self, name: &'static str, values: &[f64]) -> Row {
        self.peers.push((name, values.to_vec()));
        self
    }

    /// Adds a constant: a figure from another machine, or a limit.
    pub(crate) fn fixed(self, name: &'static str, value: f64) -> Row {
        let values = vec![value; self.ours.len()];
        self.peer(name, &values)
    }

    /// Prints the medians, and the median of the ratios of the rounds.
    pub(crate) fn print(self) {
        let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
        let ratio = |(ours, peer): (&f64, &f64)| match self.less_is_better {
            true => peer / ours,
            false => ours / peer,
        };
        let first = self.peers.first().map(|(_, values)| &values[..]).unwrap_or_default();
        let ratios = self.ours.iter().zip(first).map(ratio).collect();
        let mut row = Map::new();
        row.insert("name".into(), json!(self.name));
        row.insert("unit".into(), json!(self.unit));
        row.insert("ours".into(), json!(rounded(median(self.ours))));
        for (name, values) in self.peers {
            row.insert(name.into(), json!(rounded(median(values))));
        }
        row.insert("ratio".into(), json!(rounded(median(ratios))));
        if let Some(target) = self.target {
            row.insert("target".into(), json!(target));
        }
        println!("{}", serde_json::Value::Object(row));
    }
}
