//! Checks all JSON output of the program against its schemas.
//!
//! Implements the subset of JSON Schema that the schemas use; anything else is an error.

use std::sync::OnceLock;

use serde_json::Value;

/// Panics unless `answer` matches its schema.
pub fn check(answer: &Value) {
    static SCHEMAS: OnceLock<Value> = OnceLock::new();
    let schemas = SCHEMAS.get_or_init(|| {
        let program = env!("CARGO_BIN_EXE_parapet");
        let printed = std::process::Command::new(program).arg("schema").output().unwrap();
        serde_json::from_slice(&printed.stdout).unwrap()
    });
    let name = answer["schema"].as_str().expect("a schema is named");
    let root = &schemas[name];
    assert!(root.is_object(), "{name} is printed by `parapet schema`");
    let body = if name == "parapet/error/1" { &answer["error"] } else { &answer["data"] };
    if let Err(complaint) = conforms(body, root, root) {
        panic!("{name}: {complaint} in {body}");
    }
}

fn conforms(value: &Value, schema: &Value, root: &Value) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(name.trim_start_matches('#'));
        return conforms(value, target.ok_or(format!("{name} leads nowhere"))?, root);
    }
    for (choice, all) in [("anyOf", &schema["anyOf"]), ("oneOf", &schema["oneOf"])] {
        let Some(all) = all.as_array() else { continue };
        let fits = all.iter().any(|one| conforms(value, one, root).is_ok());
        return if fits { Ok(()) } else { Err(format!("{value} fits none of {choice}")) };
    }
    if let Some(only) = schema.get("const") {
        return if value == only { Ok(()) } else { Err(format!("{value} is not {only}")) };
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return Err(format!("no type in {schema}")),
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() || number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !types.iter().any(|one| *one == kind || *one == "number" && kind == "integer") {
        return Err(format!("{value} is no {types:?}"));
    }
    if let (Value::String(_), Some(words)) = (value, schema["enum"].as_array()) {
        return if words.contains(value) { Ok(()) } else { Err(format!("{value} is no word")) };
    }
    match value {
        Value::Array(items) => {
            items.iter().try_for_each(|one| conforms(one, &schema["items"], root))
        }
        Value::Object(fields) => {
            for name in schema["required"].as_array().into_iter().flatten() {
                let name = name.as_str().unwrap();
                if !fields.contains_key(name) {
                    return Err(format!("{name} is missing"));
                }
            }
            fields.iter().try_for_each(|(name, field)| {
                let known = &schema["properties"][name];
                if known.is_null() {
                    return Err(format!("{name} is not in the schema"));
                }
                conforms(field, known, root).map_err(|complaint| format!("{name}: {complaint}"))
            })
        }
        _ => Ok(()),
    }
}

#[test]
fn what_does_not_fit_is_noticed() {
    let fine = serde_json::json!({ "schema": "parapet/list/1",
        "data": { "arrays": [], "silent": ["x"] } });
    check(&fine);
    for (pointer, wrong) in [
        ("/data", serde_json::json!({ "arrays": [] })),
        ("/data/silent", serde_json::json!([1])),
        ("/data/arrays", serde_json::json!([{}])),
        ("/data", serde_json::json!({ "arrays": [], "silent": [], "more": 1 })),
        ("/schema", serde_json::json!("parapet/nothing/1")),
    ] {
        let mut bad = fine.clone();
        *bad.pointer_mut(pointer).unwrap() = wrong;
        assert!(std::panic::catch_unwind(|| check(&bad)).is_err(), "{bad}");
    }
}
