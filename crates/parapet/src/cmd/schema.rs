//! `parapet schema`: the JSON Schemas of all output of Parapet.

use schemars::schema_for;
use serde_json::{Value, json};

use crate::api::{
    Array, Assembled, Changed, Configuration, Demonstration, Discovery, DiskList, ErrorView,
    Examined, Health, History, Iostat, Jobs, KeptList, List, MemberDisks, Order, Plan, Recovered,
    Report, Serving, SmartView, Text, Waited, When,
};
use crate::failure::{Exit, Failure, Id, Result};
use crate::terminal::{ERROR_SCHEMA, Terminal};

/// Print the JSON Schemas of --json and the control API, or the error ids
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Schema, such as `parapet/status/1`, or `errors` [default: all]
    #[arg(value_name = "SCHEMA")]
    name: Option<String>,
}

/// The schema of the control API's request bodies.
const ORDER_SCHEMA: &str = "parapet/order/1";

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

fn all() -> serde_json::Map<String, Value> {
    let mut all = serde_json::Map::new();
    let mut put = |name: &str, schema: schemars::Schema| {
        all.insert(name.into(), schema.to_value());
    };
    put(Array::SCHEMA, schema_for!(Array));
    put(Assembled::SCHEMA, schema_for!(Assembled));
    put(Changed::SCHEMA, schema_for!(Changed));
    put(Configuration::SCHEMA, schema_for!(Configuration));
    put(Demonstration::SCHEMA, schema_for!(Demonstration));
    put(Discovery::SCHEMA, schema_for!(Discovery));
    put(DiskList::SCHEMA, schema_for!(DiskList));
    put(Examined::SCHEMA, schema_for!(Examined));
    put(Health::SCHEMA, schema_for!(Health));
    put(History::SCHEMA, schema_for!(History));
    put(Iostat::SCHEMA, schema_for!(Iostat));
    put(Jobs::SCHEMA, schema_for!(Jobs));
    put(KeptList::SCHEMA, schema_for!(KeptList));
    put(List::SCHEMA, schema_for!(List));
    put(MemberDisks::SCHEMA, schema_for!(MemberDisks));
    put(Plan::SCHEMA, schema_for!(Plan));
    put(Recovered::SCHEMA, schema_for!(Recovered));
    put(Serving::SCHEMA, schema_for!(Serving));
    put(SmartView::SCHEMA, schema_for!(SmartView));
    put(Text::SCHEMA, schema_for!(Text));
    put(Waited::SCHEMA, schema_for!(Waited));
    put(When::SCHEMA, schema_for!(When));
    #[cfg(feature = "cluster")]
    {
        use crate::api::{ClusterDemonstration, ClusterExplained, ClusterServing, ClusterStatus};
        put(ClusterDemonstration::SCHEMA, schema_for!(ClusterDemonstration));
        put(ClusterExplained::SCHEMA, schema_for!(ClusterExplained));
        put(ClusterServing::SCHEMA, schema_for!(ClusterServing));
        put(ClusterStatus::SCHEMA, schema_for!(ClusterStatus));
    }
    #[cfg(feature = "lab")]
    {
        use crate::api::{Calibrated, Comparison, Disks, Experimented, Seeds};
        put(Calibrated::SCHEMA, schema_for!(Calibrated));
        put(Comparison::SCHEMA, schema_for!(Comparison));
        put(Disks::SCHEMA, schema_for!(Disks));
        put(Experimented::SCHEMA, schema_for!(Experimented));
        put(Seeds::SCHEMA, schema_for!(Seeds));
    }
    #[cfg(feature = "notify")]
    {
        use crate::api::{Notified, NotifyTest};
        put(Notified::SCHEMA, schema_for!(Notified));
        put(NotifyTest::SCHEMA, schema_for!(NotifyTest));
    }
    #[cfg(feature = "page")]
    {
        use crate::api::PageView;
        put(PageView::SCHEMA, schema_for!(PageView));
    }
    put(ORDER_SCHEMA, schema_for!(Order));
    put(ERROR_SCHEMA, schema_for!(ErrorView));
    let errors = Id::ALL.iter().map(|(id, meaning)| {
        json!({ "id": id.to_string(), "exit_code": id.exit() as u8, "meaning": meaning })
    });
    all.insert("errors".into(), errors.collect());
    all
}
