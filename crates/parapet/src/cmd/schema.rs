//! `parapet schema`: the JSON Schemas of all output of Parapet.
//!
//! `schemas.json` has them. The test below derives them from the types of `api` and compares: the
//! program is built without the derivation.

use serde_json::{Map, Value, json};

use crate::failure::{Exit, Failure, Id, Result};
use crate::terminal::Terminal;

/// Print the JSON Schemas of --json and the control API, or the error ids
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Schema, such as `parapet/status/1`, or `errors` [default: all]
    #[arg(value_name = "SCHEMA")]
    name: Option<String>,
}

/// All schemas by name.
const SCHEMAS: &str = include_str!("schema/schemas.json");

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let all = all();
    let chosen = match &args.name {
        None => Value::Object(all),
        Some(name) => all.get(name).cloned().ok_or_else(|| {
            let names: Vec<&str> = all.keys().map(String::as_str).collect();
            let message = format!("there is no schema {name}");
            Failure::new(Id::Usage, message, format!("choose one of: {}", names.join(", ")))
        })?,
    };
    let text = serde_json::to_string_pretty(&chosen).expect("a value is JSON");
    terminal.data(&text);
    Ok(Exit::Done)
}

fn all() -> Map<String, Value> {
    let mut all: Map<String, Value> = serde_json::from_str(SCHEMAS).expect("a test wrote the file");
    let errors = Id::ALL.iter().map(|(id, meaning)| {
        json!({ "id": id.to_string(), "exit_code": id.exit() as u8, "meaning": meaning })
    });
    all.insert("errors".into(), errors.collect());
    all
}

// A program without its optional parts has their schemas, but not the types.
#[cfg(all(test, feature = "cluster", feature = "lab", feature = "notify", feature = "page"))]
mod tests {
    use std::path::Path;

    use schemars::{JsonSchema, schema_for};

    use super::*;
    use crate::api::*;
    use crate::terminal::ERROR_SCHEMA;

    /// The schema of the control API's request bodies.
    const ORDER_SCHEMA: &str = "parapet/order/1";

    fn put<R: Report + JsonSchema>(all: &mut Map<String, Value>) {
        all.insert(R::SCHEMA.into(), schema_for!(R).to_value());
    }

    fn derived() -> Map<String, Value> {
        let mut all = Map::new();
        for put in [
            put::<Array>,
            put::<Assembled>,
            put::<Changed>,
            put::<ClusterDemonstration>,
            put::<ClusterExplained>,
            put::<ClusterServing>,
            put::<ClusterStatus>,
            put::<Comparison>,
            put::<Configuration>,
            put::<Demonstration>,
            put::<Discovery>,
            put::<DiskList>,
            put::<Disks>,
            put::<Examined>,
            put::<Experimented>,
            put::<Calibrated>,
            put::<Health>,
            put::<History>,
            put::<Iostat>,
            put::<Jobs>,
            put::<KeptList>,
            put::<List>,
            put::<MemberDisks>,
            put::<Notified>,
            put::<NotifyTest>,
            put::<PageView>,
            put::<Plan>,
            put::<Recovered>,
            put::<Seeds>,
            put::<Serving>,
            put::<SmartView>,
            put::<Text>,
            put::<Waited>,
            put::<When>,
        ] {
            put(&mut all);
        }
        all.insert(ORDER_SCHEMA.into(), schema_for!(Order).to_value());
        all.insert(ERROR_SCHEMA.into(), schema_for!(ErrorView).to_value());
        all
    }

    #[test]
    fn the_stored_schemas_are_those_of_the_types() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cmd/schema/schemas.json");
        let text = format!("{:#}\n", Value::Object(derived()));
        if std::env::var_os("PARAPET_BLESS").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        let stored = std::fs::read_to_string(&file).unwrap();
        let differs = text.lines().zip(stored.lines()).position(|(one, other)| one != other);
        assert!(
            text == stored,
            "schemas.json, line {}: the types say something else; \
             PARAPET_BLESS=1 cargo test -p parapet --bins schemas accepts it",
            differs.unwrap_or_default() + 1
        );
    }
}
