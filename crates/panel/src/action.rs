//! Commands that a browser may give, and the ladder: a form must repeat the array's name before a
//! command that costs redundancy.
//!
//! Decides from the form and the state of the array only. The control API decides again: it refuses
//! what would lose data.

use serde::Serialize;

use crate::document::{Array, Member};

/// The fields of a form.
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// Parses `application/x-www-form-urlencoded`.
    pub(crate) fn parse(body: &[u8]) -> Form {
        Form(form_urlencoded::parse(body).into_owned().collect())
    }

    /// Returns the value of a field, without space around it; empty if the form has none.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.raw(name).trim()
    }

    /// Returns the value of a field as it was typed.
    pub(crate) fn raw(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value)
    }
}

/// The body of a command: the fields of `parapet/order/1` that the page uses.
#[derive(PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct Order {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) member: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) with: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scrub: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) off: bool,
}

/// The verbs of the control API that the page uses.
const VERBS: [&str; 8] = ["scrub", "fail", "remove", "add", "re-add", "replace", "clear", "locate"];

/// Returns the command of a form: verb and body.
///
/// # Errors
/// Why the form is refused: nothing is sent to the control API.
pub(crate) fn order_of(form: &Form, array: &Array) -> Result<(&'static str, Order), String> {
    let asked = form.field("verb");
    let Some(verb) = VERBS.into_iter().find(|verb| *verb == asked) else {
        return Err("The form names no command of this page.".into());
    };
    let given = |name: &str| Some(form.field(name).to_owned()).filter(|text| !text.is_empty());
    let (member, with, scrub) = (given("member"), given("with"), given("scrub"));
    let order = match verb {
        "scrub" => Order { scrub, ..Order::default() },
        "clear" => Order { member, ..Order::default() },
        "replace" => Order { member, with, ..Order::default() },
        "locate" if member.is_some() => {
            Order { member, off: given("off").is_some(), ..Order::default() }
        }
        _ if member.is_none() => return Err("Name a disk. Nothing was changed.".into()),
        _ => Order { member, ..Order::default() },
    };
    let is_confirmed = form.field("name") == array.name;
    if needs_name(verb, order.member.as_deref(), array) && !is_confirmed {
        let name = &array.name;
        return Err(format!("Not confirmed: type {name} into the form. Nothing was changed."));
    }
    Ok((verb, order))
}

/// Returns true if the command costs redundancy, or a spare that would restore it.
pub(crate) fn needs_name(verb: &str, member: Option<&str>, array: &Array) -> bool {
    // A member may be named in several ways: only one known to be out of service goes without.
    let is_it = |other: &Member| member == Some(other.uuid.as_str());
    match verb {
        "fail" => true,
        "remove" => !array.faulty.iter().any(is_it),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::healthy;

    fn form(text: &str) -> Form {
        Form::parse(text.as_bytes())
    }

    #[test]
    fn a_command_that_costs_redundancy_needs_the_typed_name() {
        let mut array = healthy();
        let refused = |text: &str, array: &Array| order_of(&form(text), array).unwrap_err();
        for typed in ["", "&name=", "&name=Tank", "&name=tank2", "&confirm=tank"] {
            let why = refused(&format!("verb=fail&member=0{typed}"), &array);
            assert_eq!(why, "Not confirmed: type tank into the form. Nothing was changed.");
        }
        let order = Order { member: Some("0".into()), ..Order::default() };
        let text = "verb=fail&member=0&name=+tank+";
        assert_eq!(order_of(&form(text), &array), Ok(("fail", order)));
        // A spare restores redundancy; a member out of service no longer does.
        let member = |uuid: &str| {
            let value = serde_json::json!({ "name": uuid, "uuid": uuid, "read_errors": 0,
                "write_errors": 0, "repaired_bytes": 0 });
            serde_json::from_value::<Member>(value).unwrap()
        };
        array.spares.push(member("05"));
        array.faulty.push(member("06"));
        assert!(refused("verb=remove&member=05", &array).starts_with("Not confirmed"));
        assert!(order_of(&form("verb=remove&member=05&name=tank"), &array).is_ok());
        assert!(order_of(&form("verb=remove&member=06"), &array).is_ok());
    }

    #[test]
    fn other_verbs_and_commands_without_a_disk_are_refused() {
        let array = healthy();
        for text in [
            "",
            "verb=stop&name=tank",
            "verb=destroy&name=tank",
            "verb=fail&name=tank",
            "verb=locate",
        ] {
            assert!(order_of(&form(text), &array).is_err(), "{text}");
        }
    }

    #[test]
    fn an_order_has_only_the_fields_of_its_verb() {
        let array = healthy();
        let json = |text: &str| {
            let (verb, order) = order_of(&form(text), &array).unwrap();
            (verb, serde_json::to_string(&order).unwrap())
        };
        let all = "member=%2Fdev%2Fsd+x&with=05&scrub=stop";
        assert_eq!(json(&format!("verb=scrub&{all}")), ("scrub", r#"{"scrub":"stop"}"#.into()));
        let add = r#"{"member":"/dev/sd x"}"#;
        assert_eq!(json(&format!("verb=add&{all}")), ("add", add.into()));
        let replace = r#"{"member":"/dev/sd x","with":"05"}"#;
        assert_eq!(json(&format!("verb=replace&{all}")), ("replace", replace.into()));
        assert_eq!(json("verb=clear"), ("clear", "{}".into()));
        let on = r#"{"member":"05"}"#;
        assert_eq!(json("verb=locate&member=05&off="), ("locate", on.into()));
        let off = r#"{"member":"05","off":true}"#;
        assert_eq!(json("verb=locate&member=05&off=1&scrub=stop"), ("locate", off.into()));
        assert_eq!(json("verb=replace&member=0&with="), ("replace", r#"{"member":"0"}"#.into()));
    }
}
